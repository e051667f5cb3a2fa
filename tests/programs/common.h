/* Shared by the test programs: exact CPU work, touched memory, and an exit with a message when a call fails. */
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

/* Exits with a status that no test expects. */
static inline void die(const char *what) {
    perror(what);
    _exit(99);
}

static inline double thread_cpu_s(void) {
    struct timespec t;
    if (clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t)) die("clock_gettime");
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* Computes until the calling thread has used `seconds` of CPU time since the call. */
static inline void burn_cpu(double seconds) {
    double end = thread_cpu_s() + seconds;
    volatile unsigned long work = 0;
    while (thread_cpu_s() < end)
        for (int i = 0; i < 20000; i++) work += (unsigned long)i;
}

/* Touches one byte in each page. */
static inline void touch_pages(char *memory, size_t bytes) {
    for (size_t i = 0; i < bytes; i += 4096) memory[i] = (char)(i >> 12 | 1);
}

static inline char *map_touched(size_t bytes, int flags) {
    char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) die("mmap");
    /* With huge pages the RSS could exceed the requested size. */
    madvise(memory, bytes, MADV_NOHUGEPAGE);
    touch_pages(memory, bytes);
    return memory;
}

static inline void hold_us(long us) {
    struct timespec t = {us / 1000000, us % 1000000 * 1000};
    while (nanosleep(&t, &t) && errno == EINTR) {}
}

static inline void hold_ms(long ms) { hold_us(ms * 1000); }

/* Reaps `child`; fails if it did not exit with status 0. */
static inline void reap(pid_t child) {
    int status;
    if (waitpid(child, &status, 0) != child) die("waitpid");
    if (!WIFEXITED(status) || WEXITSTATUS(status)) {
        fprintf(stderr, "child ended with wait status %d\n", status);
        _exit(98);
    }
}
