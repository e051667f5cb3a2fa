// The minimum work of a preloaded library, as the lower limit for the shim in scripts/bench. Without a session in the
// environment it does nothing.
//
// By default it opens and maps the session's segment as the shim does, calls getrusage, and writes nothing. With
// -DRECORDS it also writes the minimum of records about a fork child, each of the ring's record size. One is written at
// its start, one with its rusage at _exit, and one by its parent with the rusage of wait4. The records are unread, and
// writers are not synchronized.

#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

// gpu_track_abi.h: GPU_TRACK_TRACKED_SIZE.
#ifndef TRACKED_SIZE
#error "give -DTRACKED_SIZE"
#endif

static void *segment;

#ifdef RECORDS
// gpu_track_abi.h.
enum { HEADER_SIZE = 4096, CAPACITY = 2048, WORDS = 48, HEAD = 64 / 8 };

struct record {
    struct timespec at;
    long pid;
    struct rusage usage;
};

// Calls by libc would cost a fork child the page faults of libc's code.
static long call(long number, long a, long b, long c, long d) {
#ifdef __x86_64__
    long result;
    register long fourth __asm__("r10") = d;
    __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c), "r"(fourth) : "rcx", "r11", "memory");
    return result;
#else
    return syscall(number, a, b, c, d);
#endif
}

static void write_record(const struct rusage *usage) {
    if (segment == NULL)
        return;
    union {
        struct record record;
        uint64_t words[WORDS];
    } all = {.record.pid = call(SYS_getpid, 0, 0, 0, 0)};
    call(SYS_clock_gettime, CLOCK_MONOTONIC, (long)&all.record.at, 0, 0);
    if (usage != NULL)
        all.record.usage = *usage;
    uint64_t ticket = atomic_fetch_add((_Atomic uint64_t *)segment + HEAD, 1);
    volatile uint64_t *slot = (uint64_t *)((char *)segment + HEADER_SIZE) + ticket % CAPACITY * WORDS;
    for (int i = 0; i < WORDS; i++)
        slot[i] = all.words[i];
}

static void in_child(void) {
    write_record(NULL);
}

void _exit(int status) {
    struct rusage usage;
    call(SYS_getrusage, RUSAGE_SELF, (long)&usage, 0, 0);
    write_record(&usage);
    for (;;)
        call(SYS_exit_group, status, 0, 0, 0);
}

pid_t wait4(pid_t pid, int *status, int options, struct rusage *usage) {
    pid_t child = (pid_t)call(SYS_wait4, pid, (long)status, options, (long)usage);
    if (child > 0)
        write_record(usage);
    return child;
}
#endif

__attribute__((constructor)) static void start(void) {
    const char *session = getenv("GPU_TRACK_SESSION");
    if (session == NULL)
        return;
    int fd = open(session, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return;
    void *mapped = mmap(NULL, TRACKED_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (mapped == MAP_FAILED)
        return;
    segment = mapped;
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
#ifdef RECORDS
    pthread_atfork(NULL, NULL, in_child);
#endif
}
