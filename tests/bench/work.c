// Workloads of the benchmarks, which print their own cost.
//
//   work compute THREADS ROUNDS       each thread computes ROUNDS million steps; prints "WALL_NS VOLUNTARY INVOLUNTARY
//                                     CPU_NS"; the middle two are the context switches of all threads
//   work stream MEGABYTES ROUNDS      one thread computes a = b + s * c over three arrays; prints the same
//   work stalls MIB CHILDREN MAPS     holds memory in pages of 4 KiB, and about MAPS mappings, beside fork children; prints the
//                                     longest of mmap + page fault + munmap in 4 s, in nanoseconds
//   work sleepers N                   spawns N sleeping programs, prints "ready", waits for EOF on stdin, ends them
//   work busy N                       the same with N programs that compute 2 ms a second each
//   work lightly                      one of them
//   work bare SECONDS HZ PID...       the minimum cost of sampling these processes HZ times a second: clock_gettime of the
//                                     CPU clock, and pread of stat and statm on open descriptors; prints the nanoseconds
//                                     of CPU time per process and sample, and the total as a fraction of one core

#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

static long clock_ns(clockid_t clock) {
    struct timespec time = {0, 0};
    clock_gettime(clock, &time);
    return time.tv_sec * 1000000000L + time.tv_nsec;
}

static long rounds;

static void *compute(void *unused) {
    (void)unused;
    unsigned long x = 88172645463325252UL;
    for (long i = 0; i < rounds * 1000000; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
    }
    return (void *)x;
}

static void stream(size_t megabytes) {
    size_t n = megabytes * 1000000 / sizeof(double) / 3;
    double *a = malloc(n * sizeof *a), *b = malloc(n * sizeof *b), *c = malloc(n * sizeof *c);
    for (size_t i = 0; i < n; i++)
        a[i] = 0, b[i] = (double)i, c[i] = 2;
    for (long round = 0; round < rounds; round++) {
        for (size_t i = 0; i < n; i++)
            a[i] = b[i] + 3 * c[i];
        // Keeps the compiler from merging the rounds.
        __asm__ volatile("" : : "r"(a), "r"(b), "r"(c) : "memory");
    }
}

static int measured(int is_compute, long amount) {
    long start = clock_ns(CLOCK_MONOTONIC);
    if (is_compute) {
        pthread_t *threads = calloc((size_t)amount, sizeof *threads);
        for (long i = 0; i < amount; i++)
            pthread_create(&threads[i], NULL, compute, NULL);
        for (long i = 0; i < amount; i++)
            pthread_join(threads[i], NULL);
    } else {
        stream((size_t)amount);
    }
    long wall = clock_ns(CLOCK_MONOTONIC) - start;
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    printf("%ld %ld %ld %ld\n", wall, usage.ru_nvcsw, usage.ru_nivcsw, clock_ns(CLOCK_PROCESS_CPUTIME_ID));
    return 0;
}

static char *anonymous(size_t length) {
    char *at = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED)
        exit(1);
    return at;
}

static int stalls(size_t mib, long children, long maps) {
    const long page = 4096, during = 4000000000L;
    size_t length = mib << 20;
    char *memory = anonymous(length);
    madvise(memory, length, MADV_NOHUGEPAGE);
    for (size_t at = 0; at < length; at += (size_t)page)
        memory[at] = 1;
    // Every second page becomes a mapping of its own, and so does each one between two of them.
    for (long i = 0; i < maps / 2; i++)
        if (mprotect(memory + i * 2 * page, (size_t)page, PROT_READ) != 0)
            return 1;
    pid_t *pids = calloc((size_t)children, sizeof *pids);
    for (long i = 0; i < children; i++)
        if ((pids[i] = fork()) == 0) {
            pause();
            _exit(0);
        }
    long begun = clock_ns(CLOCK_MONOTONIC), longest = 0;
    for (long start; (start = clock_ns(CLOCK_MONOTONIC)) - begun < during;) {
        char *short_lived = anonymous(1 << 16);
        short_lived[0] = 1;
        munmap(short_lived, 1 << 16);
        long took = clock_ns(CLOCK_MONOTONIC) - start;
        longest = took > longest ? took : longest;
        usleep(200);
    }
    for (long i = 0; i < children; i++)
        kill(pids[i], SIGKILL);
    while (wait(NULL) > 0) {
    }
    printf("%ld\n", longest);
    return 0;
}

// Computes 20 us of each 10 ms.
static void compute_lightly(void) {
    for (;;) {
        long begun = clock_ns(CLOCK_THREAD_CPUTIME_ID);
        while (clock_ns(CLOCK_THREAD_CPUTIME_ID) - begun < 20000) {
        }
        usleep(10000);
    }
}

static int children_of(long n, char **argv) {
    pid_t *children = calloc((size_t)n, sizeof *children);
    for (long i = 0; i < n; i++)
        if (posix_spawnp(&children[i], argv[0], NULL, NULL, argv, environ) != 0)
            children[i] = 0;
    for (long i = 0; i < n; i++)
        if (children[i] == 0)
            fprintf(stderr, "work: no child %ld\n", i);
    puts("ready");
    fflush(stdout);
    char byte;
    while (read(STDIN_FILENO, &byte, 1) > 0) {
    }
    for (long i = 0; i < n; i++)
        if (children[i] > 0)
            kill(children[i], SIGTERM);
    while (wait(NULL) > 0) {
    }
    return 0;
}

static int bare(double seconds, long hz, int count, char **pids) {
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    int(*held)[2] = calloc((size_t)count, sizeof *held);
    char text[4096];
    for (int i = 0; i < count; i++) {
        snprintf(text, sizeof text, "/proc/%s/stat", pids[i]);
        held[i][0] = open(text, O_RDONLY);
        snprintf(text, sizeof text, "/proc/%s/statm", pids[i]);
        held[i][1] = open(text, O_RDONLY);
    }
    long ticks = (long)(seconds * (double)hz), begun = clock_ns(CLOCK_MONOTONIC), next = begun, spent = 0;
    long before = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
    for (long tick = 0; tick < ticks; tick++) {
        long start = clock_ns(CLOCK_THREAD_CPUTIME_ID);
        for (int i = 0; i < count; i++) {
            // CPU clock of another process (clock_getcpuclockid(3)).
            clock_ns((clockid_t)(~(unsigned)atoi(pids[i]) << 3 | 2));
            if (pread(held[i][0], text, sizeof text, 0) <= 0 || pread(held[i][1], text, sizeof text, 0) <= 0)
                return 1;
        }
        spent += clock_ns(CLOCK_THREAD_CPUTIME_ID) - start;
        next += 1000000000L / hz;
        struct timespec until = {next / 1000000000L, next % 1000000000L};
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
    }
    double all = (double)(clock_ns(CLOCK_PROCESS_CPUTIME_ID) - before);
    printf("%.1f %.5f\n", (double)spent / (double)ticks / count, all / (double)(clock_ns(CLOCK_MONOTONIC) - begun));
    return 0;
}

int main(int argc, char **argv) {
    if (argc == 4 && (strcmp(argv[1], "compute") == 0 || strcmp(argv[1], "stream") == 0)) {
        rounds = atol(argv[3]);
        return measured(argv[1][0] == 'c', atol(argv[2]));
    }
    if (argc == 5 && strcmp(argv[1], "stalls") == 0)
        return stalls((size_t)atol(argv[2]), atol(argv[3]), atol(argv[4]));
    char *sleeper[] = {"sleep", "100000", NULL}, *busy[] = {argv[0], "lightly", NULL};
    if (argc == 3 && strcmp(argv[1], "sleepers") == 0)
        return children_of(atol(argv[2]), sleeper);
    if (argc == 3 && strcmp(argv[1], "busy") == 0)
        return children_of(atol(argv[2]), busy);
    if (argc == 2 && strcmp(argv[1], "lightly") == 0)
        compute_lightly();
    if (argc > 4 && strcmp(argv[1], "bare") == 0)
        return bare(atof(argv[2]), atol(argv[3]), argc - 4, argv + 4);
    return 2;
}
