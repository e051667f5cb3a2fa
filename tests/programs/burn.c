/* burn SECONDS [threads|children COUNT]
 *
 * Burns exactly SECONDS of CPU time: itself, or in each of COUNT concurrent threads or fork children. */
#include "common.h"
#include <pthread.h>

static double seconds;

static void *burner(void *unused) {
    burn_cpu(seconds);
    return unused;
}

int main(int argc, char **argv) {
    if (argc != 2 && argc != 4) return 97;
    seconds = atof(argv[1]);
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
