/* burn SECONDS [threads|children COUNT]
 * burn SECONDS exec PROGRAM [ARGUMENTS]
 *
 * Burns exactly SECONDS of CPU time: itself, or in each of COUNT concurrent threads or fork children. Or burns and then
 * becomes PROGRAM. */
#include "common.h"
#include <pthread.h>

static double seconds;

static void *burner(void *unused) {
    burn_cpu(seconds);
    return unused;
}

int main(int argc, char **argv) {
    int execs = argc >= 4 && !strcmp(argv[2], "exec");
    if (argc != 2 && argc != 4 && !execs) return 97;
    seconds = atof(argv[1]);
    if (execs) {
        burn_cpu(seconds);
        execv(argv[3], argv + 3);
        die("execv");
    }
    int count = argc == 4 ? atoi(argv[3]) : 0;
    if (argc == 2) {
        burn_cpu(seconds);
    } else if (!strcmp(argv[2], "threads")) {
        pthread_t threads[64];
        if (count > 64) return 97;
        for (int i = 0; i < count; i++)
            if (pthread_create(&threads[i], NULL, burner, NULL)) die("pthread_create");
        for (int i = 0; i < count; i++) pthread_join(threads[i], NULL);
    } else if (!strcmp(argv[2], "children")) {
        pid_t children[64];
        if (count > 64) return 97;
        for (int i = 0; i < count; i++) {
            if ((children[i] = fork()) < 0) die("fork");
            if (!children[i]) {
                burn_cpu(seconds);
                exit(0);
            }
        }
        for (int i = 0; i < count; i++) reap(children[i]);
    } else {
        return 97;
    }
    return 0;
}
