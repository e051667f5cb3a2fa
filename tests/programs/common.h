/* What the test programs share: exact CPU work, touched memory, and a loud end when a call fails. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* A status that no test expects. */
static inline void die(const char *what) {
    perror(what);
    _exit(99);
}

static inline double thread_cpu_s(void) {
    struct timespec t;
    if (clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t)) die("clock_gettime");
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* Uses up CPU time of the calling thread until it has used `seconds` in all since the call. */
static inline void burn_cpu(double seconds) {
    double end = thread_cpu_s() + seconds;
    volatile unsigned long work = 0;
    while (thread_cpu_s() < end)
        for (int i = 0; i < 20000; i++) work += (unsigned long)i;
}

/* Touched page by page; no huge pages, so that RSS is the size asked for and no more. */
static inline void touch_pages(char *memory, size_t bytes) {
    for (size_t i = 0; i < bytes; i += 4096) memory[i] = (char)(i >> 12 | 1);
}

static inline char *map_touched(size_t bytes, int flags) {
    char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) die("mmap");
    madvise(memory, bytes, MADV_NOHUGEPAGE);
    touch_pages(memory, bytes);
    return memory;
}

static inline void hold_us(long us) {
    struct timespec t = {us / 1000000, us % 1000000 * 1000};
    while (nanosleep(&t, &t) && errno == EINTR) {}
}

static inline void hold_ms(long ms) { hold_us(ms * 1000); }

/* Reaps `child` and insists that it ended well. */
static inline void reap(pid_t child) {
    int status;
    if (waitpid(child, &status, 0) != child) die("waitpid");
    if (!WIFEXITED(status) || WEXITSTATUS(status)) {
        fprintf(stderr, "child ended with wait status %d\n", status);
        _exit(98);
    }
}
