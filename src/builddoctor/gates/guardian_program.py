"""The guardian: parent of the build, so that nothing of it can outlive the supervisor.

Stand-alone, standard library only, run as ``python -IS`` in a session of its own:
``guardian.py FD CLEANUP -- COMMAND…``. It is a child subreaper: whatever the build leaves behind becomes its child.
Over FD, one byte a message, the supervisor asks for a signal to the build (the byte is its number), for the end of
everything (0xff), or that the guardian keeps its pages in memory (0xfe). SIGTERM goes to the command alone, as it would
without us: a server ends its own workers in order. Others go to its group, as from a terminal. Answers are lines:
``failed ERRNO``, ``status N``, ``left N``. End of file on FD means that the supervisor is dead: everything ends,
temporary files of killed compilers and CLEANUP (the run's own folder) are removed.

Compilers get SIGTERM first, since gcc and nvcc then remove their temporary files themselves.
"""

import contextlib
import ctypes
import os
import select
import shutil
import signal
import sys
import tempfile
import time

PR_SET_CHILD_SUBREAPER = 36
END_ALL = 0xFF
LOCK_PAGES = 0xFE
MCL_CURRENT_ON_FAULT = 1 | 4
"""What is mapped now, as soon as it is in memory: nothing is read in for it (mlockall(2), since Linux 4.4)."""
TERM_GRACE_S = 1.5
TURN_S = 0.02
MOST_LOOKS = 20
KILL_GRACE_S = 60.0
"""A process that has not ended so long after SIGKILL hangs in the kernel, perhaps on a dead network disk."""


PIDFD_SEND_SIGNAL, PIDFD_OPEN = 424, 434
"""System calls, the same on all of today's processors."""


def pidfd_open(pid):
    """As ``os.pidfd_open``, which conda's Pythons and older ones of uv lack: built for Linux before 5.3, they run on
    later ones."""
    return os.pidfd_open(pid) if hasattr(os, "pidfd_open") else system_call(PIDFD_OPEN, pid, 0)


def pidfd_send_signal(held, number):
    if hasattr(signal, "pidfd_send_signal"):
        signal.pidfd_send_signal(held, number)
    else:
        system_call(PIDFD_SEND_SIGNAL, held, int(number), None, 0)


def system_call(*words):
    answer = ctypes.CDLL(None, use_errno=True).syscall(*words)
    if answer < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return answer


def lock_pages():
    """Keep our pages in memory; False where that is not allowed (RLIMIT_MEMLOCK). No child inherits it."""
    return ctypes.CDLL(None, use_errno=True).mlockall(MCL_CURRENT_ON_FAULT) == 0


class Guardian:
    def __init__(self, control, cleanup):
        self.control = control
        self.cleanup = cleanup
        self.build = None
        self.status = None
        self.known = set()
        self.stopped = []
        self.family = set()
        self.not_ours = set()

    def say(self, text):
        with contextlib.suppress(OSError):
            os.write(self.control, (text + "\n").encode())

    def start(self, command):
        """Fork the build into a process group of its own."""
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            os.setpgid(0, 0)
            for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGPIPE", "SIGXFSZ", "SIGCHLD"):
                signal.signal(getattr(signal, name), signal.SIG_DFL)
            os.close(self.control)
            try:
                os.execvp(command[0], command)
            except OSError as error:
                os.write(writer, str(error.errno).encode())
            except ValueError:
                # An empty or impossible name.
                os.write(writer, b"2")
            os._exit(127)
        os.close(writer)
        self.build = child
        with contextlib.suppress(OSError):
            os.setpgid(child, child)
        problem = os.read(reader, 16)
        os.close(reader)
        if problem:
            self.say("failed " + problem.decode())

    def reap(self):
        """Collect whatever ended; True while there are children."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self.build:
                self.status = status

    def descendants(self):
        """All below us, by the parent of each process of the system: threads fork too."""
        children = {}
        for name in os.listdir("/proc"):
            if name.isdigit():
                state, parent = self.look_at(int(name))
                if state not in (b"", b"Z"):
                    children.setdefault(parent, []).append((int(name), state == b"T"))
        found, pending, self.stopped = [], [os.getpid()], []
        while pending:
            for child, is_stopped in children.get(pending.pop(), ()):
                found.append(child)
                pending.append(child)
                if is_stopped:
                    self.stopped.append(child)
        self.family = {os.getpid(), *found}
        self.known.update(found)
        return found

    @staticmethod
    def look_at(pid):
        """State and parent; an empty state when there is no such process."""
        try:
            with open("/proc/%d/stat" % pid, "rb") as stat:
                _, _, tail = stat.read().rpartition(b")")
        except OSError:
            return b"", 0
        fields = tail.split()
        return (fields[0], int(fields[1])) if len(fields) > 1 else (b"", 0)

    def end_all(self):
        """End every descendant: SIGTERM, a moment to clean up, then SIGKILL until none is left. Gives their number."""
        victims = self.stop_all()
        for pid in victims:
            self.signal(pid, signal.SIGTERM)
            self.signal(pid, signal.SIGCONT)
        # By turns, not by the clock: a machine that stood still gave them no moment.
        for _ in range(round(TERM_GRACE_S / TURN_S)):
            if not self.reap():
                break
            time.sleep(TURN_S)
        for _ in range(round(KILL_GRACE_S / TURN_S)):
            if not self.reap():
                break
            found = self.descendants()
            for pid in found:
                self.signal(pid, signal.SIGKILL)
            if found and self.not_ours.issuperset(found):
                break
            time.sleep(TURN_S)
        return len(set(victims) - self.not_ours)

    def stop_all(self):
        """Stop every descendant, until a look shows no new one. What starts and dies between two looks is not known."""
        victims = []
        for _ in range(MOST_LOOKS):
            new = [pid for pid in self.descendants() if pid not in victims]
            if not new:
                break
            for pid in new:
                self.signal(pid, signal.SIGSTOP)
            victims += new
        return victims

    def signal(self, pid, number):
        """Signal a descendant. Held first and looked at afterwards: its number may be another's by now."""
        try:
            held = pidfd_open(pid)
        except ProcessLookupError:
            return
        except OSError:
            # No pidfds (before Linux 5.3, or forbidden): better a number than a process left behind.
            with contextlib.suppress(OSError):
                os.kill(pid, number)
            return
        try:
            if self.look_at(pid)[1] in self.family:
                pidfd_send_signal(held, number)
        except PermissionError:
            # Another user's by now, as what `sudo` starts: it may not be signalled from here.
            self.not_ours.add(pid)
        except OSError:
            pass
        os.close(held)

    def remove_temporaries(self):
        """nvcc names its temporary files after its pid, and leaves them when it is killed.

        Any process of the build may be one: what was a shell when it was looked at may be an nvcc when it dies.
        """
        folder = tempfile.gettempdir()
        marks = tuple("tmpxft_%08x_" % pid for pid in self.known)
        with contextlib.suppress(OSError):
            for name in os.listdir(folder) if marks else ():
                if name.startswith(marks):
                    with contextlib.suppress(OSError):
                        os.unlink(os.path.join(folder, name))

    def obey(self, message):
        """One byte from the supervisor."""
        if message == END_ALL:
            self.end_all()
            if self.status is None:
                # It is another user's, or hangs in the kernel: it is not waited for.
                self.status = signal.SIGKILL
        elif message == LOCK_PAGES:
            lock_pages()
        elif self.status is None:
            # Descendants are known only while they live, and a signal leaves nvcc's temporary files behind.
            self.descendants()
            with contextlib.suppress(OSError):
                # It has not been waited for, so its number is its own.
                (os.kill if message == signal.SIGTERM else os.killpg)(self.build, message)
            # A stopped process gets its signal when it goes on, and what waits for it would wait for ever.
            for pid in self.stopped:
                self.signal(pid, signal.SIGCONT)

    def watch(self, woken):
        """Until the build has ended, or the supervisor has."""
        poll = select.poll()
        poll.register(self.control, select.POLLIN)
        poll.register(woken, select.POLLIN)
        while True:
            self.reap()
            if self.status is not None:
                left = self.end_all() if self.reap() else 0
                self.remove_temporaries()
                self.say("left %d" % left)
                self.say("status %d" % self.status)
                return
            for fd, _ in poll.poll():
                if fd == woken:
                    os.read(woken, 512)
                    continue
                message = os.read(self.control, 1)
                if not message:
                    self.end_all()
                    self.remove_temporaries()
                    shutil.rmtree(self.cleanup, ignore_errors=True)
                    return
                self.obey(message[0])


def main(argv):
    control, cleanup, command = int(argv[1]), argv[2], argv[4:]
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    os.set_inheritable(control, False)
    woken, waker = os.pipe()
    for fd in (woken, waker):
        os.set_blocking(fd, False)
    signal.set_wakeup_fd(waker)
    for number in (signal.SIGCHLD, signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # Handled, not ignored: an ignored signal would stay ignored in the build. Only FD is obeyed.
        signal.signal(number, lambda *_: None)
    guardian = Guardian(control, cleanup)
    guardian.start(command)
    guardian.watch(woken)


if __name__ == "__main__":
    main(sys.argv)
