/* hard_limits threads|mlockall
 *
 * threads: up to 10,000 threads, all alive at once; prints their number, or the error at a limit. mlockall: locks all
 * memory as an unprivileged process with 8 MiB of RLIMIT_MEMLOCK (the kernel's default); prints the result. Afterwards it
 * has one child, to show that fork still works. */
#include "common.h"
#include <pthread.h>

static pthread_barrier_t all_alive;

static void *wait_for_all(void *unused) {
    pthread_barrier_wait(&all_alive);
    return unused;
}

static void threads(int count) {
    pthread_t *ids = calloc((size_t)count, sizeof *ids);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 16384);
    pthread_barrier_init(&all_alive, NULL, (unsigned)count + 1);
    for (int i = 0; i < count; i++) {
        int error = pthread_create(&ids[i], &attributes, wait_for_all, NULL);
        if (error) {
            printf("no thread: %s\n", strerror(error));
            fflush(stdout);
            _exit(8);
        }
    }
    pthread_barrier_wait(&all_alive);
    for (int i = 0; i < count; i++) pthread_join(ids[i], NULL);
    printf("%d threads\n", count);
}

static void lock_all(void) {
    /* The limit does not apply to root, which has CAP_IPC_LOCK. */
    if (!geteuid() && (setresgid(65534, 65534, 65534) || setresuid(65534, 65534, 65534))) die("setresuid");
    struct rlimit limit = {8 << 20, 8 << 20};
    if (setrlimit(RLIMIT_MEMLOCK, &limit)) die("setrlimit");
    printf("mlockall: %s\n", mlockall(MCL_CURRENT) ? strerror(errno) : "done");
}

int main(int argc, char **argv) {
    if (argc != 2) return 97;
    if (strcmp(argv[1], "threads")) lock_all();
    else threads(10000);
    fflush(stdout);
    pid_t child = fork();
    if (child < 0) die("fork");
    if (!child) _exit(0);
    reap(child);
    return 9;
}
