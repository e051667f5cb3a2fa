// Creates children one after another and prints two lines, with a number for each child. The first has the nanoseconds
// from before its creation to after its wait, the second the microseconds of CPU time that the kernel counted for it.
//
//   births spawn N PROGRAM            posix_spawn of a program, with the argument "grow"
//   births fork N                     fork; the child calls _exit at once
//   births many N                     as fork, but prints only "COUNT NANOSECONDS" (CLOCK_MONOTONIC) ten times
//   births grow                       is such a program: its RSS grows beyond its parent's peak
//   births sides N PROGRAM SIDE...    posix_spawn with each SIDE in turn: SIDE is the child's LD_PRELOAD, or - for neither
//                                     preload nor session in its environment; prints two lines per SIDE

#define _GNU_SOURCE
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

static long now_ns(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000L + time.tv_nsec;
}

static void fail(const char *what) {
    perror(what);
    exit(1);
}

struct taken {
    long wall_ns, cpu_us;
};

static struct taken reaped(pid_t child, long start_ns) {
    struct rusage usage;
    int status;
    if (wait4(child, &status, 0, &usage) != child)
        fail("wait4");
    long cpu_us = (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000000L + usage.ru_utime.tv_usec +
                  usage.ru_stime.tv_usec;
    return (struct taken){now_ns() - start_ns, cpu_us};
}

static struct taken spawn(char *program, char **environment) {
    char *argv[] = {program, "grow", NULL};
    long start = now_ns();
    pid_t child;
    if (posix_spawn(&child, program, NULL, NULL, argv, environment) != 0)
        fail("posix_spawn");
    return reaped(child, start);
}

static struct taken fork_one(void) {
    long start = now_ns();
    pid_t child = fork();
    if (child == 0)
        _exit(0);
    if (child < 0)
        fail("fork");
    return reaped(child, start);
}

// The environment with this LD_PRELOAD, or (for -) without LD_PRELOAD and session.
static char **environment_of(const char *side) {
    size_t entries = 0;
    while (environ[entries] != NULL)
        entries++;
    char **copy = calloc(entries + 2, sizeof *copy);
    size_t used = 0;
    for (size_t i = 0; i < entries; i++) {
        int is_session = strncmp(environ[i], "GPU_TRACK_SESSION=", 18) == 0;
        if (strncmp(environ[i], "LD_PRELOAD=", 11) != 0 && !(is_session && strcmp(side, "-") == 0))
            copy[used++] = environ[i];
    }
    if (strcmp(side, "-") != 0 && asprintf(&copy[used], "LD_PRELOAD=%s", side) < 0)
        fail("asprintf");
    return copy;
}

static char growth[768 << 10];

static int grow(void) {
    for (size_t i = 0; i < sizeof growth; i += 4096)
        ((volatile char *)growth)[i] = 1;
    return 0;
}

static int many(long n) {
    for (long i = 1; i <= n; i++) {
        fork_one();
        if (i % (n / 10) == 0) {
            printf("%ld %ld\n", i, now_ns());
            fflush(stdout);
        }
    }
    return 0;
}

int main(int argc, char **argv) {
    if (argc == 2 && strcmp(argv[1], "grow") == 0)
        return grow();
    if (argc == 3 && strcmp(argv[1], "many") == 0)
        return many(atol(argv[2]));
    if (argc < 3)
        return 2;
    long n = atol(argv[2]);
    int sides = argc > 4 ? argc - 4 : 1;
    struct taken *taken = malloc(sizeof *taken * (size_t)n * (size_t)sides);
    if (strcmp(argv[1], "spawn") == 0 && argc == 4) {
        for (long i = 0; i < n; i++)
            taken[i] = spawn(argv[3], environ);
    } else if (strcmp(argv[1], "fork") == 0) {
        for (long i = 0; i < n; i++)
            taken[i] = fork_one();
    } else if (strcmp(argv[1], "sides") == 0 && argc > 4) {
        char ***environments = calloc((size_t)sides, sizeof *environments);
        for (int side = 0; side < sides; side++)
            environments[side] = environment_of(argv[4 + side]);
        for (long i = 0; i < n; i++)
            for (int side = 0; side < sides; side++)
                taken[side * n + i] = spawn(argv[3], environments[side]);
    } else {
        return 2;
    }
    for (int side = 0; side < sides; side++) {
        for (long i = 0; i < n; i++)
            printf("%ld ", taken[side * n + i].wall_ns);
        printf("\n");
        for (long i = 0; i < n; i++)
            printf("%ld ", taken[side * n + i].cpu_us);
        printf("\n");
    }
    return 0;
}
