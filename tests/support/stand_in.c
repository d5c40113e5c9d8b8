/* Stands in for nvcc, g++ and the programs that they call; which one, its name says.
 *
 * Drivers (nvcc, g++) read the unit's file: a line for each phase, "PROGRAM ARGUMENTS", run one after the other. All
 * others read what to do from the first argument that has an input's suffix:
 *     to MS KIB     hold so much at so many milliseconds after the start; in a straight line from the line before
 *     busy          from here on take a core, instead of sleeping
 *     once FILE     with FILE there already, end well at once; else write our pid into it
 *     until FILE    wait for FILE to be there
 *     first MS KIB  with -E -fdirectives-only: hold so much for so long, write what is read to the output, and end
 * Then they write what they were called to a file of their own, so that a phase that was sent has something to bring back.
 * Some 100 KiB of memory, and a millisecond to start. Usage: see support/replaying.py.
 */
#define _GNU_SOURCE
#include <libgen.h>
#include <limits.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

#define MACHINE "x86_64-replay-linux"
#define VERSION "13"
#define STEP ((size_t)256 << 10)
#define ROOM ((size_t)1 << 40)

extern char **environ;

static double now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e3 + t.tv_nsec / 1e6;
}

static void pause_until(double ms, int busy) {
    while (busy && now_ms() < ms)
        ;
    struct timespec t = {(time_t)(ms / 1e3), (long)((ms - 1e3 * (time_t)(ms / 1e3)) * 1e6)};
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
}

/* -- drivers ---------------------------------------------------------------------------------------------------- */

/* The gate, where there is one, else the program itself beside us. */
static int find(const char *here, const char *name, char *path) {
    char folders[8192], *folder, *rest = folders;
    if (strcmp(name, "cc1plus") && strcmp(name, "collect2")) {
        snprintf(path, PATH_MAX, strcmp(name, "cicc") ? "%s/%s" : "%s/../nvvm/bin/%s", here, name);
        return access(path, X_OK);
    }
    snprintf(folders, sizeof folders, "%s", getenv("COMPILER_PATH") ? getenv("COMPILER_PATH") : "");
    while ((folder = strsep(&rest, ":")) != NULL) {
        snprintf(path, PATH_MAX, "%s/" MACHINE "/" VERSION "/%s", folder, name);
        if (access(path, X_OK) == 0)
            return 0;
    }
    char own[PATH_MAX] = "";
    if (readlink("/proc/self/exe", own, sizeof own - 1) < 0)
        return -1;
    snprintf(path, PATH_MAX, "%s/%s", dirname(own), name);
    return access(path, X_OK);
}

static int drive(const char *here, int argc, char **argv) {
    const char *unit = NULL, *output = NULL;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "-o") == 0 && i + 1 < argc)
            output = argv[++i];
        else if (strcmp(argv[i], "-c") == 0 && i + 1 < argc)
            unit = argv[++i];
        else if (strncmp(argv[i], "-Wl,@", 5) == 0)
            unit = argv[i] + 5;
    }
    FILE *plan = unit ? fopen(unit, "r") : NULL;
    if (plan == NULL)
        return 0; /* a question that has no answer */
    char line[8192], path[PATH_MAX];
    while (fgets(line, sizeof line, plan)) {
        char *words[64], *rest = line;
        int count = 0;
        for (char *word; count < 63 && (word = strsep(&rest, " \n")) != NULL;)
            if (*word)
                words[count++] = word;
        words[count] = NULL;
        pid_t child;
        int status;
        if (count == 0)
            continue;
        if (find(here, words[0], path) || (words[0] = path, posix_spawn(&child, path, NULL, NULL, words, environ)))
            return fprintf(stderr, "stand-in: cannot run %s\n", path), 127;
        while (waitpid(child, &status, 0) < 0)
            ;
        if (status)
            return fprintf(stderr, "stand-in: %s ended with status %d\n", path, status), WIFEXITED(status) ? 1 : 255;
    }
    fclose(plan);
    FILE *made = output ? fopen(output, "w") : NULL;
    return made ? fclose(made) : 0;
}

static int nvcc(int argc, char **argv) {
    char copy[PATH_MAX], here[PATH_MAX], top[PATH_MAX];
    snprintf(copy, sizeof copy, "%s", argv[0]);
    snprintf(here, sizeof here, "%s", dirname(copy));
    snprintf(copy, sizeof copy, "%s", here);
    snprintf(top, sizeof top, "%s", dirname(copy));
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--version") == 0)
            return !printf("Cuda compilation tools, release 13.0, V13.0.1\n");
        if (strcmp(argv[i], "--dryrun") == 0)
            return fprintf(stderr, "#$ _HERE_=%s\n#$ TOP=%s/..\n#$ CICC_PATH=%s/nvvm/bin\n#$ PATH=%s/nvvm/bin:%s\n",
                           here, here, top, top, here) < 0;
    }
    return drive(here, argc, argv);
}

static int gxx(int argc, char **argv) {
    char path[PATH_MAX] = "";
    if (argc > 1 && strcmp(argv[1], "-dumpmachine") == 0)
        return !printf(MACHINE "\n");
    if (argc > 1 && strcmp(argv[1], "-dumpversion") == 0)
        return !printf(VERSION "\n");
    if (argc > 1 && strncmp(argv[1], "-print-prog-name=", 17) == 0)
        return !printf("%s\n", find("", argv[1] + 17, path) == 0 && *path ? path : argv[1] + 17);
    return drive("", argc, argv);
}

/* -- everything else ---------------------------------------------------------------------------------------------- */

static char *memory;
static size_t held;

static void hold(size_t wanted) {
    wanted = wanted / STEP * STEP;
    if (wanted > ROOM)
        wanted = ROOM;
    if (wanted < held)
        madvise(memory + wanted, held - wanted, MADV_DONTNEED);
    else if (wanted > held && madvise(memory + held, wanted - held, MADV_POPULATE_WRITE))
        for (size_t at = held; at < wanted; at += 4096)
            memory[at] = 1;
    held = wanted;
}

/* In a straight line, in steps that are as fine as they can be seen. */
static void go(double from_ms, double from_kib, double to_ms, double to_kib, int busy) {
    double change = (to_kib - from_kib) * 1024, took = to_ms - from_ms;
    while (now_ms() < to_ms) {
        double share = (now_ms() - from_ms) / took;
        hold((size_t)(from_kib * 1024 + share * change));
        double next = change ? now_ms() + took * (double)STEP / (change < 0 ? -change : change) : to_ms;
        pause_until(next < to_ms ? next : to_ms, busy);
    }
    hold((size_t)(to_kib * 1024));
}

static int has_suffix(const char *word) {
    static const char *suffixes[] = {".ii", ".gpu", ".ptx", ".o", ".cpp"};
    size_t length = strlen(word);
    for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++)
        if (length > strlen(suffixes[i]) && strcmp(word + length - strlen(suffixes[i]), suffixes[i]) == 0)
            return 1;
    return 0;
}

static const char *after(int argc, char **argv, const char *option) {
    for (int i = 1; i + 1 < argc; i++)
        if (strcmp(argv[i], option) == 0)
            return argv[i + 1];
    return NULL;
}

/* What a source is before it is sent: itself. */
static int copy(const char *from, const char *to) {
    static char block[1 << 20];
    FILE *input = fopen(from, "r"), *output = to ? fopen(to, "w") : NULL;
    size_t count;
    if (input == NULL || output == NULL)
        return perror("stand-in: copy"), 1;
    while ((count = fread(block, 1, sizeof block, input)) > 0)
        if (fwrite(block, 1, count, output) != count)
            return perror("stand-in: copy"), 1;
    fclose(input);
    return fclose(output) != 0;
}

static int tool(int argc, char **argv) {
    int sent = 0;
    for (int i = 1; i < argc; i++)
        sent |= strcmp(argv[i], "-E") == 0 ? 1 : strcmp(argv[i], "-fdirectives-only") == 0 ? 2 : 0;
    const char *output = after(argc, argv, "--gen_c_file_name");
    output = output ? output : after(argc, argv, "-o");
    double began = now_ms(), at_ms = began, at_kib = 0, ms, kib;
    int busy = 0, place = 1;
    while (place < argc && !has_suffix(argv[place]))
        place++;
    FILE *input = place < argc ? fopen(argv[place], "r") : NULL;
    if (input == NULL)
        return 0;
    memory = mmap(NULL, ROOM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return perror("stand-in: mmap"), 1;
    madvise(memory, ROOM, MADV_NOHUGEPAGE);
    char line[4096], file[4096];
    while (fgets(line, sizeof line, input) && line[0] != '\0') {
        if (sscanf(line, "first %lf %lf", &ms, &kib) == 2) {
            if (sent != 3)
                continue;
            go(0, 0, began + ms, kib, busy);
            return copy(argv[place], output);
        }
        if (sscanf(line, "to %lf %lf", &ms, &kib) == 2) {
            go(at_ms, at_kib, began + ms, kib, busy);
            at_ms = began + ms, at_kib = kib;
        } else if (strncmp(line, "busy", 4) == 0) {
            busy = 1;
        } else if (sscanf(line, "once %4095s", file) == 1) {
            FILE *mark = fopen(file, "wx");
            if (mark == NULL)
                return 0;
            fprintf(mark, "%d\n", getpid());
            fclose(mark);
        } else if (sscanf(line, "until %4095s", file) == 1) {
            // What follows takes its time from then on.
            double waits = now_ms();
            while (access(file, F_OK))
                pause_until(now_ms() + 2, 0);
            waits = now_ms() - waits;
            began += waits, at_ms += waits;
        }
    }
    fclose(input);
    FILE *made = output ? fopen(output, "w") : NULL;
    if (made == NULL)
        return 0;
    fprintf(made, "made by %s\n", argv[0]);
    return fclose(made) != 0;
}

int main(int argc, char **argv) {
    const char *name = strrchr(argv[0], '/') ? strrchr(argv[0], '/') + 1 : argv[0];
    if (strcmp(name, "nvcc") == 0)
        return nvcc(argc, argv);
    return strcmp(name, "g++") == 0 ? gxx(argc, argv) : tool(argc, argv);
}
