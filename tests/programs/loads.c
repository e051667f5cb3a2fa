/* A process that loads a library: loads LIBRARY exit|close|nothing
 * LIBRARY is loaded when the process ends, was loaded and closed, or was never loaded.
 *
 * loads LIBRARY race N: N times, a child whose second thread loads and closes LIBRARY all the time ends by _exit. Without a
 * pause, and before exit would wait for the thread, the library is being loaded or closed at that moment. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *library;
static atomic_int rounds;

static void *load(void) {
    void *loaded = dlopen(library, RTLD_NOW);
    if (!loaded) {
        fprintf(stderr, "%s\n", dlerror());
        _exit(98);
    }
    return loaded;
}

static void *load_and_close(void *unused) {
    (void)unused;
    for (;; rounds++) dlclose(load());
    return NULL;
}

static int end_in_a_race(int pauses) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, load_and_close, NULL)) return 97;
    while (!rounds) {}
    for (volatile int i = 0; i < pauses; i++) {}
    _exit(0);
}

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    library = argv[1];
    if (!strcmp(argv[2], "exit")) load();
    if (!strcmp(argv[2], "close")) dlclose(load());
    for (int i = 0; argc > 3 && i < atoi(argv[3]); i++) {
        pid_t child = fork();
        int status;
        /* Each time ends at another moment of the other thread's work. */
        if (child == 0) return end_in_a_race(i % 100 * 100);
        if (waitpid(child, &status, 0) != child || status) {
            fprintf(stderr, "child %d ended with wait status %x\n", i, status);
            return 1;
        }
    }
    return 0;
}
