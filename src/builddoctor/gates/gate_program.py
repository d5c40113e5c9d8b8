"""The gate: stands where a compiler tool is called, and lets it start when its memory is there.

Stand-alone: copied into the overlay and run as ``python -IS``; standard library only, and only what starts in a
millisecond (no json, no subprocess, no socket module). It sends argv, cwd, pids and sizes of input files; no
environment, no file contents.

Roles: ``phase`` asks, waits, runs the tool as its child, reports, and may be told to run it again; ``unit`` (nvcc)
registers, waits until it is opened, and becomes the real nvcc, or the gate of another one; ``front`` (ninja, cmake,
make) registers and becomes the real program. A phase may be done on another machine: then its gate is told how it
ended, and its files are there.

In an activated shell (BUILDDOCTOR_ACTIVE names what starts a supervisor) the first gate of a build starts the build's
supervisor, and the later ones find it: its socket is named after the build's topmost activated process.

Rules. No supervisor, and none to be had: the real tool at once. Supervisor lost while waiting: where another can be had
it is asked again; else one at a time, under a lock that the kernel releases. The child's own status is returned, by the
same signal if it died of one; but a ptxas whose output is torn has failed, whatever it says.

Frames, both ways: 4 bytes length (little endian), then fields separated by NUL.
"""

import _signal
import _socket
import os
import sys
import time

PROTOCOL = "2"
MAX_FRAME = 1 << 20
QUERIES = frozenset(
    (
        "--version",
        "-V",
        "-version",
        "--help",
        "-h",
        "-help",
        "--dryrun",
        "-dryrun",
        "--list-gpu-arch",
        "--list-gpu-code",
    )
)
FORWARDED = (1, 2, 15)  # HUP, INT, TERM
SIGINT, SIGKILL, SIGPIPE, SIGXFSZ = 2, 9, 13, 25
INSIDE_GCC = frozenset(("cc1", "cc1plus", "lto1", "collect2"))
OOM_SCORE = "1000"
"""The most that counts: the kernel adds it to a process's share of the memory in thousandths. With 500 a server that
holds more than half of it would be ended, and not the compiler beside it."""
THRIFT = ("--param=ggc-min-expand=10", "--param=ggc-min-heapsize=32768")
"""All that a supervisor may add to a tool's own arguments, and only to these two: gcc collects its garbage earlier. The
output does not depend on it. Never 0 for the first: that collects without end."""
THRIFTY = frozenset(("cc1", "cc1plus"))
KEEP = "keep"
"""In an answer: the supervisor wants to read what the tool wrote before anything else does, and what it said."""
GIVES_WAY = "give-way"
"""In an answer: the tool leaves the cores to the unit on which the end of the build depends."""
NICE = 5
"""It gets a third of what that unit gets; with 3 one of three on two cores still got four fifths of a core."""
MOST_SAID = 1 << 18
"""Of what a tool says, so much is told at most: one that says more says it, and is not kept."""


MOST_SUPERVISORS = 3
"""So often a gate whose supervisor was lost asks the next."""
START_S = 60
"""A supervisor that has not begun to listen after this time is not waited for."""
REFUSED_S = 30
"""So long after a supervisor could not be started none tries again."""


def connect(role):
    """A connection to the supervisor, or None when there is none."""
    path = os.environ.get("BUILDDOCTOR_SOCKET")
    connection = dial(path) if path else None
    start = os.environ.get("BUILDDOCTOR_ACTIVE")
    return connection if connection is not None or not start else join(start, role)


def dial(path):
    """A connection to the supervisor that listens there, or None."""
    try:
        connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
        connection.connect(path)
    except OSError:
        return None
    os.set_inheritable(connection.fileno(), False)
    return connection


def join(start, role):
    """A connection to the supervisor of this build; where it has none, ``start`` is run to be it."""
    import fcntl

    root = build_root(role)
    folder = "/tmp/builddoctor-of-%d" % os.geteuid()
    path = "%s/%s" % (folder, root)
    connection = dial(path) if is_own(folder) else None
    if connection is None:
        try:
            lock = os.open(start, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            # The others of this build wait until there is one.
            fcntl.flock(lock, fcntl.LOCK_EX)
            connection = dial(path) if is_own(folder) else None
            if connection is None and not was_refused(path) and begin(start, root) and is_own(folder):
                connection = dial(path)
        except OSError:
            pass
        finally:
            os.close(lock)
    if connection is not None:
        os.environ["BUILDDOCTOR_SOCKET"] = path
    return connection


def is_own(folder):
    """Whoever listens in it is this user: it was made by and for nobody else."""
    try:
        seen = os.lstat(folder)
    except OSError:
        return False
    return seen.st_mode & 0o170077 == 0o040000 and seen.st_uid == os.geteuid()


def was_refused(path):
    try:
        return abs(time.time() - os.stat(path + ".refused").st_mtime) < REFUSED_S
    except OSError:
        return False


def build_root(role):
    """``PID-TICKS`` of the process that this build is: the topmost above us that is activated too.

    A shell that was activated is not, since its own environment was settled before: so each command that is typed is a
    build. But for a compiler that was typed by itself, which is its shell's. The first process of a container is taken
    for a shell, since its image may be activated (ENV); where it is a gate, it has become the build itself.
    """
    lone = {"phase": 2, "unit": 1, "front": 0}[role]
    pid, chain = os.getpid(), []
    while pid > 0:
        activated = not chain or b"\0BUILDDOCTOR_ACTIVE=" in b"\0" + read_file("/proc/%d/environ" % pid)
        if (pid == 1 or not activated) and len(chain) > lone:
            break
        stat = read_file("/proc/%d/stat" % pid)
        fields = stat[stat.rfind(b")") + 2 :].split()
        if len(fields) < 20:
            break
        chain.append("%d-%s" % (pid, fields[19].decode()))
        if not activated:
            break
        pid = int(fields[1])
    return chain[-1] if chain else "0-0"


def read_file(path):
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


def begin(start, root):
    """Start the supervisor, apart from the build: it holds no pipe, terminal or folder of it. True: it listens."""
    import select

    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setsid()
            if os.fork():
                os._exit(0)
            null = os.open("/dev/null", os.O_RDWR)
            for number, fd in enumerate((null, writer, null)):
                os.dup2(fd, number)
            for name in os.listdir("/proc/self/fd"):
                if int(name) > 2:
                    try:
                        os.close(int(name))
                    except OSError:
                        pass
            os.chdir("/")
            become(start, start, [root], os.environ)
        finally:
            os._exit(127)
    os.close(writer)
    os.waitpid(child, 0)
    # Readable also when it has ended without a word.
    heard = select.select([reader], [], [], START_S)[0] and os.read(reader, 1)
    os.close(reader)
    return heard == b"+"


def send(connection, fields):
    """One frame; False when the supervisor is gone. Long command lines are cut, never the head of the frame."""
    body = b"\0".join(os.fsencode(field) for field in fields)[:MAX_FRAME]
    frame = len(body).to_bytes(4, "little") + body
    try:
        while frame:
            frame = frame[connection.send(frame) :]
    except OSError:
        return False
    return True


def receive(connection):
    """Fields of one frame, or None when the supervisor is gone."""
    head = read_exactly(connection, 4)
    if head is None:
        return None
    body = read_exactly(connection, int.from_bytes(head, "little"))
    return None if body is None else os.fsdecode(body).split("\0")


def read_exactly(connection, count):
    data = b""
    while len(data) < count:
        try:
            piece = connection.recv(count - len(data))
        except OSError:
            return None
        if not piece:
            return None
        data += piece
    return data


def folder():
    try:
        return os.getcwd()
    except OSError:
        return ""


def input_sizes(args):
    """``index=bytes`` of the arguments that are files."""
    sizes = []
    for index, argument in enumerate(args):
        if "." in argument and not argument.startswith("-"):
            try:
                sizes.append("%d=%d" % (index, os.stat(argument).st_size))
            except (OSError, ValueError):
                pass
    return ",".join(sizes)


def high_water_kib():
    """Peak memory of this gate (VmHWM: ru_maxrss would show the parent's before exec)."""
    try:
        with open("/proc/self/status", "rb") as status:
            for line in status:
                if line.startswith(b"VmHWM:"):
                    return int(line.split()[1])
    except (OSError, ValueError, IndexError):
        pass
    return 0


def become(real, shown, args, environ):
    """Turn into the real program; does not return."""
    # Python ignores these two, and what is ignored stays ignored in all that the program starts.
    for number in (SIGPIPE, SIGXFSZ):
        _signal.signal(number, _signal.SIG_DFL)
    try:
        os.execve(real, [shown, *args], environ)
    except OSError as error:
        sys.stderr.write("builddoctor gate: cannot run %s: %s\n" % (real, error.strerror))
        os._exit(127 if isinstance(error, FileNotFoundError) else 126)


def run_child(real, args, started, said=None, gives_way=False):
    """Run the tool once. Gives its wait status and resource use; ``started(pid)`` is called when it runs.

    ``said``: a file that gets what it prints."""
    child = os.fork()
    if child == 0:
        if gives_way:
            os.nice(NICE)
        if said is not None:
            os.dup2(said, 1)
            os.dup2(said, 2)
        try:
            with open("/proc/self/oom_score_adj", "w") as score:
                score.write(OOM_SCORE)
        except OSError:
            pass
        # What the tool starts itself (collect2 its lto1, clang its linker) is part of its phase: it must not ask for
        # memory and a slot that this phase holds.
        become(real, real, args, dict(os.environ, BUILDDOCTOR_HELD="1"))

    def forward(number, _frame):
        try:
            os.kill(child, number)
        except OSError:
            pass

    for number in FORWARDED:
        if _signal.getsignal(number) != _signal.SIG_IGN:
            _signal.signal(number, forward)
    started(child)
    _, status, usage = os.wait4(child, 0)
    for number in FORWARDED:
        if _signal.getsignal(number) != _signal.SIG_IGN:
            _signal.signal(number, _signal.SIG_DFL)
    return status, usage


def leave(status):
    """End as the child ended."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        try:
            import resource

            # The child has dumped its core, if any; a second one of the gate would only fill the disk.
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            if number != SIGKILL:
                _signal.signal(number, _signal.SIG_DFL)
        except (ImportError, OSError, ValueError):
            pass
        os.kill(os.getpid(), number)
        os._exit(128 + number)
    os._exit(os.WEXITSTATUS(status))


def wait_in_line():
    """The supervisor was lost: hold a lock while the tool runs, so that all that waited do not start at once."""
    import fcntl

    try:
        lock = os.open(os.path.realpath(__file__), os.O_RDONLY | os.O_CLOEXEC)
        fcntl.flock(lock, fcntl.LOCK_EX)
    except OSError:
        pass


def is_query(role, name, args):
    """A question that takes no memory. The programs inside gcc are never asked any: ``g++ -v`` compiles."""
    if role == "phase":
        return name not in INSIDE_GCC and len(args) == 1 and args[0] in QUERIES
    return not QUERIES.isdisjoint(args)


def can_run_again(name, args):
    """From files to files: what was read from a pipe is gone, what was written to one cannot be taken back."""
    if "-" in args:
        return False
    prints = name.startswith("clang") and not {"-E", "-M", "-MM"}.isdisjoint(args)
    return not (prints or name in ("cc1", "cc1plus", "lto1")) or "-o" in args


def torn_output(name, args):
    """What ptxas wrote, where its end is missing; empty where nothing is.

    On a full disk ptxas 13.0 writes what fits, and ends with 0. The tables of a cubin lie at its end, and its head says
    where. So a disk on which all has just found room is none that is full, and one that was full for a moment, or by a
    quota, is found as well.
    """
    if name != "ptxas" or "-o" not in args[:-1]:
        return ""
    path = os.path.abspath(args[args.index("-o") + 1])
    try:
        seen = os.stat(path)
        if seen.st_mode & 0o170000 != 0o100000:
            # A pipe would be waited for.
            return ""
        with open(path, "rb") as file:
            head = file.read(64)
    except OSError:
        return ""

    def number(at, count):
        return int.from_bytes(head[at : at + count], "little")

    ends = (64, number(32, 8) + number(54, 2) * number(56, 2), number(40, 8) + number(58, 2) * number(60, 2))
    return path if not head or (head[:5] == b"\x7fELF\2" and seen.st_size < max(ends)) else ""


def say_torn(path):
    where = os.path.dirname(path)
    try:
        disk = os.statvfs(where)
        free = "%d MiB are free there" % (disk.f_bavail * disk.f_frsize >> 20)
    except OSError as error:
        free = error.strerror
    say(
        os.fsencode(
            "builddoctor: ptxas ended with 0, but the end of %s is missing: it is removed, and the compile fails. %s: "
            "df -h %s\n" % (path, free, where)
        )
    )


def remove(path):
    try:
        os.unlink(path)
    except OSError:
        pass


def with_thrift(name, args, answer):
    """The tool's arguments, and those of the answer (behind its first field) that may be added."""
    wanted = () if answer is None or name not in THRIFTY else answer[1:]
    return args + [each for each in THRIFT if each in wanted and each not in args]


def ask(role, fields):
    """The supervisor's connection and answer. No connection: there is none. No answer: it was lost while we waited."""
    waited = None
    for _ in range(MOST_SUPERVISORS):
        connection = connect(role)
        if connection is None or not send(connection, fields):
            return waited, None
        answer = receive(connection)
        if answer is not None:
            return connection, answer
        waited = connection
        if not os.environ.get("BUILDDOCTOR_ACTIVE"):
            break
    return waited, None


def was_done(answer):
    """Another machine has run the tool, or had before: end as it did there, with what it printed."""
    if answer is None or answer[0] != "done":
        return
    say(os.fsencode(answer[2]))
    leave(int(answer[1]))


def say(printed):
    try:
        while printed:
            printed = printed[os.write(2, printed) :]
    except OSError:
        pass


def pass_on(said, silently):
    """Say what the tool said into this file; gives it, as a list of one field. Too much for that is always said."""
    size, at = os.fstat(said).st_size, 0
    fields = [os.pread(said, size, 0).replace(b"\0", b"")] if size <= MOST_SAID else []
    while at < size and not (silently and fields):
        piece = os.pread(said, MOST_SAID, at)
        say(piece)
        at += len(piece)
    return fields


def phase(real, shown, args):
    name = shown.rsplit("/", 1)[-1]
    again = can_run_again(name, args)
    connection, answer = ask(
        "phase",
        ["ask", PROTOCOL, str(os.getpid()), str(os.getppid()), os.environ.get("BUILDDOCTOR_UNIT", ""), shown]
        + [folder(), input_sizes(args), "1" if again else "0", *args],
    )
    if connection is None:
        become(real, real, args, os.environ)
    if answer is None:
        wait_in_line()
    was_done(answer)
    while True:
        # Something may have to be run before: it preprocesses what is then looked for, or sent to another machine. What
        # it warns of is said again by a compile here: so it is said only where there is none.
        before = answer is not None and answer[0] == "before"
        args = with_thrift(name, args, answer)
        keeps = answer is not None and not before and KEEP in answer
        said = os.memfd_create("said") if keeps or before else None
        status, usage = run_child(
            real,
            answer[1:] if before else args,
            lambda pid: send(connection, ["start", str(pid)]),
            said,
            answer is not None and not before and GIVES_WAY in answer,
        )
        torn = torn_output(name, args) if status == 0 else ""
        if torn:
            say_torn(torn)
            status = 1 << 8
        told = send(
            connection,
            ["end", str(status), str(usage.ru_maxrss), "%.3f" % (usage.ru_utime + usage.ru_stime)]
            + ["%.6f" % time.process_time(), str(high_water_kib())]
            + ([] if said is None else pass_on(said, before and status == 0)),
        )
        if before:
            answer = receive(connection) if told else None
            was_done(answer)
            if answer is None:
                wait_in_line()
            continue
        if status == 0 and not keeps:
            leave(status)
        answer = receive(connection) if told else None
        was_done(answer)
        if answer is None or answer[0] not in ("again", "before") or not again:
            # Not sooner: the supervisor has looked at the disk as ptxas left it.
            if torn:
                remove(torn)
            leave(status)


def with_threads(args, threads):
    """The same arguments with this number wherever they say ``--threads``, and how often they do."""
    changed = list(args)
    found = 0
    for index, argument in enumerate(args):
        name, equals, _ = argument.partition("=")
        before = args[index - 1] if index else ""
        if before.startswith("-X"):
            # That is for another program.
            continue
        if name in ("--threads", "-t") and equals:
            changed[index] = "%s=%d" % (name, threads)
        elif argument in ("--threads", "-t") and index + 1 < len(args):
            changed[index + 1] = str(threads)
        elif argument.startswith("-t") and argument[2:].isdigit():
            changed[index] = "-t%d" % threads
        else:
            continue
        found += 1
    return changed, found


def set_threads(args, environ, threads):
    """nvcc's arguments with ``--threads`` as told. What its own variables say is made the same: of two different
    numbers the variable's would hold, with a warning."""
    for name in ("NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS"):
        if name in environ:
            environ[name] = " ".join(with_threads(environ[name].split(" "), threads)[0])
    args, found = with_threads(args, threads)
    return args if found else [*args, "--threads", str(threads)]


def unit(real, shown, args):
    connection, answer = ask(
        "unit",
        ["unit", PROTOCOL, str(os.getpid()), shown, folder(), "%.6f" % time.process_time(), str(high_water_kib())]
        + args,
    )
    environ = dict(os.environ)
    if connection is None:
        become(real, real, args, environ)
    if answer is not None and answer[0] == "instead":
        # The gate of another toolkit, which the build has chosen since it began: it asks by itself.
        become(answer[1], answer[1], args, environ)
    if answer is None or len(answer) < 3:
        # Hundreds may have waited here: one at a time, and no more than one phase of each.
        wait_in_line()
        status, _ = run_child(real, with_threads(args, 1)[0], lambda _: None)
        leave(status)
    environ["BUILDDOCTOR_UNIT"] = answer[1]
    if answer[2] != "0":
        args = set_threads(args, environ, int(answer[2]))
    become(real, shown, args, environ)


def front(real, shown, args):
    _, answer = ask(
        "front",
        ["front", PROTOCOL, str(os.getpid()), shown, folder(), "%.6f" % time.process_time(), str(high_water_kib())]
        + args,
    )
    environ = dict(os.environ)
    if answer is not None and len(answer) > 1:
        # go, number of further arguments, those arguments, then NAME=value; @NAME@ in it is what NAME was. NAME alone
        # is to be taken away.
        count = int(answer[1])
        args = args + answer[2 : 2 + count]
        for setting in answer[2 + count :]:
            name, equals, value = setting.partition("=")
            if equals:
                environ[name] = value.replace("@" + name + "@", environ.get(name, ""))
            else:
                environ.pop(name, None)
    become(real, real, args, environ)


def main(argv):
    """``gate.py ROLE REAL SHOWN ARG…``; SHOWN is the path in the overlay."""
    role, real, shown = argv[1:4]
    args = argv[4:]
    # A gate that waits dies of Ctrl-C like any program; Python would print a traceback.
    if _signal.getsignal(SIGINT) != _signal.SIG_IGN:
        _signal.signal(SIGINT, _signal.SIG_DFL)
    if is_query(role, shown.rsplit("/", 1)[-1], args):
        become(real, shown if role == "unit" else real, args, os.environ)
    {"phase": phase, "unit": unit, "front": front}[role](real, shown, args)


if __name__ == "__main__":
    main(sys.argv)
