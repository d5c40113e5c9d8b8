#!/bin/sh
# builddoctor's stand-in for ninja: it builds in stages, so that what is compiled at once fits into memory.
#
# It calls the next ninja on PATH, or $BUILDDOCTOR_REAL_NINJA. The file `stages` beside it, or in the folder that
# $BUILDDOCTOR_STAGES names, says what is built together and with how many jobs; the files `stage-N` say the targets.
# Without them, and for whatever builds none of those targets, it is the real ninja: same arguments, same exit code.
# A stage in which the kernel ends a process for lack of memory runs again with half of its jobs.

nl='
'
tab='	'

say() {
    printf 'builddoctor: %s\n' "$1" >&2
}

is_ours() {
    case $(dd if="$1" bs=128 count=1 2>/dev/null | LC_ALL=C tr -d '\000') in
    *"builddoctor's stand-in for ninja"*) return 0 ;;
    *) return 1 ;;
    esac
}

# In a build under builddoctor's gates these are asked, and no stage is needed.
gated=''
[ ! -S "${BUILDDOCTOR_SOCKET:-}" ] || gated=1

# find_real NAME: the first on PATH that is no stand-in, and no gate but in a build that has gates.
find_real() {
    folders=${PATH:-/usr/bin:/bin}:
    while [ -n "$folders" ]; do
        folder=${folders%%:*}
        folders=${folders#*:}
        real=${folder:-.}/$1
        [ -f "$real" ] && [ -x "$real" ] || continue
        [ -n "$gated" ] || [ ! -e "${folder:-.}/../.builddoctor-overlay" ] || continue
        is_ours "$real" || return 0
    done
    return 1
}

name=${BUILDDOCTOR_STAGED_AS:-ninja}
unset BUILDDOCTOR_STAGED_AS
real=${BUILDDOCTOR_REAL_NINJA:-}
if [ -n "$gated" ] || [ -z "$real" ] || is_ours "$real"; then
    find_real "$name" || find_real ninja || find_real ninja-build || {
        say 'there is no ninja on PATH'
        exit 127
    }
fi

case $0 in
*/*) data=${0%/*} ;;
*) data=. ;;
esac
data=${BUILDDOCTOR_STAGES:-${data:-/}}
[ -z "$gated" ] && [ -r "$data/stages" ] || exec "$real" "$@"

# -- what is asked for -----------------------------------------------------------------------------------------

plain='' options='' where='' goals='' cap='' chdir=. manifest=build.ninja keeps=''

# value LETTER VALUE: an option with its value.
value() {
    case $1 in
    j)
        case $2 in
        '' | *[!0-9]*) plain=1 ;;
        ????????*) cap=0 ;;
        *) cap=$2 ;;
        esac
        return
        ;;
    C) chdir=$2 where=$where-C$nl$2$nl ;;
    f) manifest=$2 where=$where-f$nl$2$nl ;;
    k) keeps=$2 ;;
    d | w) [ "$2" != list ] || plain=1 ;;
    esac
    options=$options-$1$nl$2$nl
}

# option WORD: a word that begins with a dash; sets `wants` to the letter whose value is the next word.
option() {
    case $1 in
    --verbose | --quiet)
        options=$options$1$nl
        return
        ;;
    --*)
        plain=1
        return
        ;;
    esac
    letters=${1#-}
    while [ -n "$letters" ] && [ -z "$plain" ]; do
        following=${letters#?}
        letter=${letters%"$following"}
        letters=$following
        case $letter in
        v) options=$options-v$nl ;;
        C | f | j | k | l | d | w)
            if [ -n "$letters" ]; then value "$letter" "$letters"; else wants=$letter; fi
            return
            ;;
        *) plain=1 ;;
        esac
    done
}

wants=''
for word in "$@"; do
    case $word in
    '' | *"$nl"*) plain=1 ;;
    esac
    if [ -n "$wants" ]; then
        letter=$wants wants=''
        value "$letter" "$word"
        continue
    fi
    case $word in
    -?*) option "$word" ;;
    *) goals=$goals$word$nl ;;
    esac
done
[ -z "$wants" ] || plain=1
[ -n "$plain" ] || built=$(CDPATH='' cd -- "$chdir" 2>/dev/null && [ -r "$manifest" ] && pwd -P) || plain=1
[ -z "$plain" ] || exec "$real" "$@"
[ -n "$keeps" ] || [ -z "${BUILDDOCTOR_STAGES_KEEP_GOING:-}" ] || value k 0
[ "${cap:-0}" -ne 0 ] && [ -z "${BUILDDOCTOR_STAGES_ANY_J:-}" ] || cap=''

# -- what of it the stages have --------------------------------------------------------------------------------

# From here on, lists are split at their lines, and at nothing else.
set -f
IFS=$nl

# shellcheck disable=SC2086 # split on purpose, here and below
ask() {
    "$real" $where "$@" 2>&1
}

# Everything that can be built as `PATH: RULE`, or what the goals are made of, in the shell's quotes.
listed() {
    for goal in $goals; do
        case $goal in
        all | install | install/*) ;;
        *)
            # Before 1.11 ninja knows no `inputs`; its commands name what they make.
            # shellcheck disable=SC2086
            ask -t inputs $goals || ask -t commands $goals | sed -n 's/.* -o \([^ ]*\).*/\1/p'
            return
            ;;
        esac
    done
    ask -t targets all
}

# Lines `STAGE<tab>TARGET` for all targets that are there, in the order of the plan. Where Ninja has them by absolute
# paths, they end in what the plan calls them.
found() {
    listed | LC_ALL=C DATA=$data BUILT=$built awk '
        BEGIN {
            data = ENVIRON["DATA"]; built = ENVIRON["BUILT"] "/"; quote = "\047"
            while ((getline line < (data "/stages")) > 0) {
                number = line
                sub(/\t.*/, "", number)
                if (number !~ /^[0-9]+$/) continue
                while ((getline target < (data "/stage-" number)) > 0)
                    if (!(target in stage)) { stage[target] = number; order[++many] = target }
                close(data "/stage-" number)
            }
        }
        {
            path = $0
            if (path ~ /\t/) next
            if (!sub(/: [A-Za-z0-9_.-]+$/, "", path) && path ~ ("^" quote ".*" quote "$")) {
                path = substr(path, 2, length(path) - 2)
                gsub(quote "[\\\\]" quote quote, quote, path)
            }
            if (path in stage) exact[path] = path
            else if (index(path, built) == 1 && substr(path, length(built) + 1) in stage)
                exact[substr(path, length(built) + 1)] = path
            else if (path ~ /^\//) absolute[++others] = path
        }
        END {
            for (each = 1; each <= others; each++) {
                end = absolute[each]
                while ((at = index(end, "/")) > 0) {
                    end = substr(end, at + 1)
                    if (!(end in stage)) continue
                    if (!(end in exact)) ending[end] = ending[end] "\n" absolute[each]
                    break
                }
            }
            for (each = 1; each <= many; each++) {
                target = order[each]
                if (target in exact) print stage[target] "\t" exact[target]
                else if (target in ending) {
                    count = split(substr(ending[target], 2), paths, "\n")
                    for (one = 1; one <= count; one++) print stage[target] "\t" paths[one]
                }
            }
        }'
}

targets=$(found)
[ -n "$targets" ] || exec "$real" "$@"

# -- running it ------------------------------------------------------------------------------------------------

child='' signalled=0
# shellcheck disable=SC2329 # called by the traps
# The real ninja gets the signal as well when this program alone was sent it; it ends its compilers and tidies up.
on_signal() {
    signalled=$1
    [ -z "$child" ] || kill -s "$2" "$child" 2>/dev/null
}
trap 'on_signal 1 HUP' HUP
trap 'on_signal 2 INT' INT
trap 'on_signal 3 TERM' QUIT
trap 'on_signal 15 TERM' TERM
(: <&0) 2>/dev/null || exec </dev/null

# run JOBS TARGETS: the real ninja with the caller's options. It runs beside this shell, which can then hear signals.
run() {
    [ "$signalled" -eq 0 ] || exit $((128 + signalled))
    # shellcheck disable=SC2086
    "$real" $options -j "$1" $2 <&0 3<&- &
    child=$!
    [ "$signalled" -eq 0 ] || kill -s TERM "$child" 2>/dev/null
    wait "$child"
    status=$?
    while [ "$signalled" -ne 0 ] && kill -0 "$child" 2>/dev/null; do
        wait "$child"
    done
    child=''
    [ "$signalled" -eq 0 ] || exit $((128 + signalled))
    return "$status"
}

# Processes that the kernel has ended for lack of memory: in this cgroup; on this machine where no cgroup tells.
kills() {
    LC_ALL=C awk '
        function count(file,    line, known) {
            while ((getline line < file) > 0)
                if (line ~ /^oom_kill [0-9]+/) { total += substr(line, 10); known = 1 }
            close(file)
            return known
        }
        BEGIN {
            top = "/sys/fs/cgroup"
            while ((getline line < "/proc/self/cgroup") > 0) {
                sub(/^[0-9]+:/, "", line)
                at = index(line, ":")
                kinds = "," substr(line, 1, at - 1) ","
                path = substr(line, at + 1)
                if (path == "/") path = ""
                if (index(kinds, ",memory,")) {
                    told += count(top "/memory" path "/memory.oom_control") || count(top "/memory/memory.oom_control")
                } else if (kinds == ",,") {
                    told += count(top path "/memory.events") || count(top "/unified" path "/memory.events") ||
                        count(top "/memory.events")
                }
            }
            if (!told) told = count("/proc/vmstat")
            if (told) print total + 0
        }'
}

# batches STAGE: its targets, in lines of no more than 100 KB each, tab between them: a command line has an end.
batches() {
    printf '%s\n' "$targets" | LC_ALL=C awk -v stage="$1" '
        {
            at = index($0, "\t")
            if (substr($0, 1, at - 1) != stage) next
            target = substr($0, at + 1)
            if (used > 0 && used + length(target) >= 100000) { printf "\n"; used = 0 }
            printf "%s%s", (used > 0 ? "\t" : ""), target
            used += length(target) + 1
        }
        END { if (used > 0) printf "\n" }'
}

# run_batches JOBS LINES: all of them, or up to the one that fails.
run_batches() {
    for batch in $2; do
        run "$1" "$(printf '%s\n' "$batch" | tr '\t' '\n')" || return
    done
}

# left TARGETS: those of them that are not built, ten at most.
left() {
    many=0
    for target in $1; do
        case $(ask -n "$target") in
        *'no work to do'*) continue ;;
        esac
        many=$((many + 1))
        if [ "$many" -gt 10 ]; then
            echo '...'
            return
        fi
        printf '%s\n' "$target"
    done
}

own_flags=${NVCC_APPEND_FLAGS:-}
knows_threads=''
case "${NVCC_PREPEND_FLAGS:-} $own_flags" in
*--threads*) knows_threads=1 ;;
esac
! grep -q -e --threads -- "$built/$manifest" 2>/dev/null || knows_threads=1

# run_stage NAME JOBS THREADS LINES WORDS: again with half of the jobs while the kernel ends its processes.
run_stage() {
    jobs=$2
    if [ -n "$cap" ] && [ "$cap" -lt "$jobs" ]; then
        jobs=$cap
        say "stage $1: -j $2 would fit; keeps to the -j $cap that was asked for"
    fi
    # nvcc takes the last value, and warns. One that is too old to know the flag is left alone.
    if [ "$3" -gt 1 ] || [ -n "$knows_threads" ]; then
        NVCC_APPEND_FLAGS="${own_flags:+$own_flags }--threads $3"
        export NVCC_APPEND_FLAGS
    fi
    while :; do
        say "stage $1 ($5, -j $jobs)"
        before=$(kills)
        if [ -n "$4" ]; then run_batches "$jobs" "$4"; else run "$jobs" "$goals"; fi
        code=$?
        [ "$code" -ne 0 ] || return 0
        after=$(kills)
        case $before$after,$code in
        ,137 | ,9) ;;
        *) [ "$before" != "$after" ] || return 0 ;;
        esac
        if [ "$jobs" -le 1 ]; then
            say "stage $1: the kernel ended a process for lack of memory, and it ran with -j 1; fewer jobs cannot help"
            for target in $(left "$(printf '%s' "$4" | tr '\t' '\n')"); do
                say "not built: $target"
            done
            exit "$code"
        fi
        jobs=$((jobs / 2))
        say "stage $1: the kernel ended a process for lack of memory; it runs again with -j $jobs"
    done
}

# upto STAGE: the end, where no more than this one is asked for.
upto() {
    [ "$1" = "${BUILDDOCTOR_STAGES_UPTO:-}" ] || return 0
    [ "$failed" -ne 0 ] || [ -z "${BUILDDOCTOR_STAGES_REACHED:-}" ] || : >"$BUILDDOCTOR_STAGES_REACHED"
    exit "$failed"
}

# A changed CMakeLists.txt makes this build.ninja anew, and perhaps with other targets.
case $nl$(ask -t targets all) in
*"$nl$manifest: "*)
    case $(ask -n "$manifest") in
    *'no work to do'*) ;;
    *)
        run 1 "$manifest" || exit
        targets=$(found)
        ;;
    esac
    ;;
esac

[ -z "${BUILDDOCTOR_STAGES_MARK:-}" ] || : >>"$BUILDDOCTOR_STAGES_MARK"
all=$(printf '%s\n' "$targets" | grep -c .)
failed=0
while IFS=$tab read -r number jobs threads title <&3; do
    case $number:$jobs:$threads in
    rest:[1-9]*:[1-9]*) units='whatever is left' lines='' ;;
    [1-9]*:[1-9]*:[1-9]*)
        lines=$(batches "$number")
        if [ -z "$lines" ]; then
            upto "$title"
            continue
        fi
        units="$(printf '%s\n' "$lines" | tr '\t' '\n' | grep -c .) of $all units"
        ;;
    *) continue ;;
    esac
    case $jobs$threads in
    *[!0-9]*) continue ;;
    esac
    run_stage "$title" "$jobs" "$threads" "$lines" "$units"
    [ "$code" -eq 0 ] || failed=$code
    [ "$code" -eq 0 ] || [ "${keeps:-1}" != 1 ] || exit "$code"
    upto "$title"
done 3<"$data/stages"
exit "$failed"
