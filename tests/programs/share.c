/* share private PARENT_BYTES FORKS FORK_BYTES SECONDS
 *     FORKS children share their parent's PARENT_BYTES copy-on-write; each also touches FORK_BYTES of its own.
 * share maps MAPS MAP_BYTES FORKS SECONDS
 *     MAPS separate shared anonymous mappings, which the parent and FORKS children all touch.
 * share growing MAPS MAP_BYTES FORKS SECONDS
 *     The same, but each child takes SECONDS to touch them.
 *
 * Of the mappings, the children touch each MiB in step: where one is ahead of another, what a sample adds up over the
 * processes that it reads one after another is more than there was at any time.
 *
 * All processes hold their memory for SECONDS after the last of them is ready. */
#include "common.h"
#include <pthread.h>

static char *maps[64];
static size_t map_count, map_bytes, own_bytes;
static double growing_s;
static pthread_barrier_t *in_step;

static void child_touches(void) {
    const size_t step = 1 << 20;
    if (own_bytes) map_touched(own_bytes, MAP_PRIVATE);
    for (size_t i = 0; i < map_count; i++) {
        for (size_t from = 0; from < map_bytes; from += step) {
            touch_pages(maps[i] + from, map_bytes - from < step ? map_bytes - from : step);
            if (growing_s > 0) {
                hold_us((long)(growing_s * 1e6 * step / (map_count * map_bytes)));
            } else {
                pthread_barrier_wait(in_step);
            }
        }
    }
}

int main(int argc, char **argv) {
    if (argc != 6) return 97;
    int forks;
    if (!strcmp(argv[1], "private")) {
        map_touched(strtoul(argv[2], NULL, 10), MAP_PRIVATE);
        forks = atoi(argv[3]);
        own_bytes = strtoul(argv[4], NULL, 10);
    } else if (!strcmp(argv[1], "maps") || !strcmp(argv[1], "growing")) {
        if (*argv[1] == 'g') growing_s = atof(argv[5]);
        map_count = strtoul(argv[2], NULL, 10);
        map_bytes = strtoul(argv[3], NULL, 10);
        forks = atoi(argv[4]);
        if (map_count > 64) return 97;
        for (size_t i = 0; i < map_count; i++) maps[i] = map_touched(map_bytes, MAP_SHARED);
    } else {
        return 97;
    }
    in_step = map_touched(sizeof *in_step, MAP_SHARED);
    pthread_barrierattr_t shared;
    if (pthread_barrierattr_init(&shared) || pthread_barrierattr_setpshared(&shared, PTHREAD_PROCESS_SHARED) ||
        pthread_barrier_init(in_step, &shared, (unsigned)forks))
        die("pthread_barrier_init");
    int ready[2], release[2];
    if (forks > 64 || pipe(ready) || pipe(release)) die("pipe");
    pid_t children[64];
    for (int i = 0; i < forks; i++) {
        if ((children[i] = fork()) < 0) die("fork");
        if (!children[i]) {
            char byte = 1;
            close(release[1]);
            child_touches();
            if (write(ready[1], &byte, 1) != 1) die("write");
            if (read(release[0], &byte, 1) != 0) die("read");
            exit(0);
        }
    }
    for (int i = 0; i < forks; i++) {
        char byte;
        if (read(ready[0], &byte, 1) != 1) die("read");
    }
    hold_ms((long)(atof(argv[5]) * 1000));
    close(release[1]);
    for (int i = 0; i < forks; i++) reap(children[i]);
    return 0;
}
