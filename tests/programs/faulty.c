/* faulty none|overflow|leak|race|shift
 *
 * Has the given fault, which a sanitizer finds, or none. Then it has three fork children and one spawned child. */
#include "common.h"
#include <pthread.h>
#include <spawn.h>

extern char **environ;
static int shared;

static void *touch(void *unused) {
    shared++;
    return unused;
}

int main(int argc, char **argv) {
    if (argc != 2) return 97;
    volatile int shift = 40;
    volatile char *memory = malloc(8);
    if (!strcmp(argv[1], "overflow")) memory[shift - 32] = 1;
    if (strcmp(argv[1], "leak")) free((void *)memory);
    else memory = NULL;
    if (!strcmp(argv[1], "shift")) shared = 1 << shift;
    if (!strcmp(argv[1], "race")) {
        pthread_t threads[2];
        for (int i = 0; i < 2; i++)
            if (pthread_create(&threads[i], NULL, touch, NULL)) die("pthread_create");
        for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    }
    for (int i = 0; i < 3; i++) {
        pid_t child = fork();
        if (child < 0) die("fork");
        if (!child) _exit(0);
        reap(child);
    }
    pid_t child;
    char *const arguments[] = {"true", NULL};
    if (posix_spawn(&child, "/bin/true", NULL, NULL, arguments, environ)) die("posix_spawn");
    reap(child);
    puts("done");
    return 5;
}
