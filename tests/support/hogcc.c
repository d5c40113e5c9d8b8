/* A compiler that no gate knows: hogcc MIB MIB_PER_S FILE takes memory at its own pace, then waits for FILE.
 *
 * As steady_hog.py, but no Python: what runs Python is never stopped. Stopped or starved, it catches up nothing.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define STEP_MIB 4

static void rest(double seconds) {
    struct timespec t = {(time_t)seconds, (long)((seconds - (time_t)seconds) * 1e9)};
    nanosleep(&t, NULL);
}

int main(int argc, char **argv) {
    if (argc < 4)
        return 2;
    for (int held = 0; held < atoi(argv[1]); held += STEP_MIB) {
        if (mmap(NULL, STEP_MIB << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0) ==
            MAP_FAILED)
            return 3;
        rest(STEP_MIB / atof(argv[2]));
    }
    while (access(argv[3], F_OK) != 0)
        rest(0.02);
    return 0;
}
