/* touch hold BYTES MS                      touches BYTES and holds them for MS milliseconds
 * touch threads BYTES MS                   two threads do so, one after another, after the main thread has ended
 * touch forks|execs COUNT BYTES MS         COUNT children do so, one after another (by fork, or by fork and exec)
 * touch together COUNT BYTES MS            COUNT fork children do so at once: none exits before all have touched theirs
 * touch in_turn COUNT BYTES MS             the same, but they exit one after another, MS apart */
#include "common.h"
#include <pthread.h>

static void hold(size_t bytes, long ms) {
    map_touched(bytes, MAP_PRIVATE);
    hold_ms(ms);
}

static void together(int count, size_t bytes, long held_ms, long apart_ms) {
    int ready[2], release[2];
    if (pipe(ready) || pipe(release)) die("pipe");
    pid_t children[64];
    if (count > 64) _exit(97);
    for (int i = 0; i < count; i++) {
        if ((children[i] = fork()) < 0) die("fork");
        if (!children[i]) {
            char byte = 1;
            close(release[1]);
            map_touched(bytes, MAP_PRIVATE);
            if (write(ready[1], &byte, 1) != 1) die("write");
            if (read(release[0], &byte, 1) != (apart_ms > 0)) die("read");
            exit(0);
        }
    }
    for (int i = 0; i < count; i++) {
        char byte;
        if (read(ready[0], &byte, 1) != 1) die("read");
    }
    hold_ms(held_ms);
    for (int i = 0; i < count && apart_ms > 0; i++) {
        if (write(release[1], "", 1) != 1) die("write");
        hold_ms(apart_ms);
    }
    close(release[1]);
    for (int i = 0; i < count; i++) reap(children[i]);
}

static size_t thread_bytes;
static long thread_ms;

static void *thread_holds(void *after) {
    if (after) pthread_join(*(pthread_t *)after, NULL);
    hold(thread_bytes, thread_ms);
    return NULL;
}

int main(int argc, char **argv) {
    if (argc == 4 && !strcmp(argv[1], "threads")) {
        static pthread_t first, second;
        thread_bytes = strtoul(argv[2], NULL, 10);
        thread_ms = atol(argv[3]);
        if (pthread_create(&first, NULL, thread_holds, NULL)) die("pthread_create");
        if (pthread_create(&second, NULL, thread_holds, &first)) die("pthread_create");
        pthread_exit(NULL);
    }
    if (argc == 4 && !strcmp(argv[1], "hold")) {
        hold(strtoul(argv[2], NULL, 10), atol(argv[3]));
        return 0;
    }
    if (argc != 5) return 97;
    int count = atoi(argv[2]);
    size_t bytes = strtoul(argv[3], NULL, 10);
    long ms = atol(argv[4]);
    if (!strcmp(argv[1], "together")) {
        together(count, bytes, ms, 0);
        return 0;
    }
    if (!strcmp(argv[1], "in_turn")) {
        together(count, bytes, 0, ms);
        return 0;
    }
    int execs = !strcmp(argv[1], "execs");
    if (!execs && strcmp(argv[1], "forks")) return 97;
    for (int i = 0; i < count; i++) {
        pid_t child = fork();
        if (child < 0) die("fork");
        if (!child && execs) {
            execl("/proc/self/exe", "touch", "hold", argv[3], argv[4], (char *)NULL);
            die("execl");
        }
        if (!child) {
            hold(bytes, ms);
            exit(0);
        }
        reap(child);
    }
    return 0;
}
