/* cancelled_wait waitpid|waitid SECONDS
 *
 * A thread that is blocked in the given function is cancelled and must unwind. The child that it waited for then burns
 * SECONDS of CPU and exits, and the main thread reaps it. */
#include "common.h"
#include <pthread.h>

static pid_t child;
static const char *how;
static volatile pid_t waiter_tid;
static volatile int unwound;

static void unwind(void *unused) {
    (void)unused;
    unwound = 1;
}

static void *waiter(void *unused) {
    pthread_cleanup_push(unwind, NULL);
    waiter_tid = (pid_t)syscall(SYS_gettid);
    siginfo_t info;
    if (!strcmp(how, "waitid")) waitid(P_PID, (id_t)child, &info, WEXITED);
    else waitpid(child, NULL, 0);
    pthread_cleanup_pop(0);
    return unused;
}

/* Whether the thread is blocked in a wait system call, by /proc/PID/task/TID/syscall. */
static int is_blocked(void) {
    char path[64], text[64] = "";
    if (!waiter_tid) return 0;
    snprintf(path, sizeof path, "/proc/self/task/%d/syscall", waiter_tid);
    int fd = open(path, O_RDONLY);
    if (fd < 0) return 0;
    ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    long number = n > 0 ? strtol(text, NULL, 10) : -1;
    return number == SYS_wait4 || number == SYS_waitid;
}

int main(int argc, char **argv) {
    if (argc != 3) return 97;
    how = argv[1];
    int release[2];
    if (pipe(release)) die("pipe");
    if ((child = fork()) < 0) die("fork");
    if (!child) {
        char byte;
        close(release[1]);
        if (read(release[0], &byte, 1) != 0) die("read");
        burn_cpu(atof(argv[2]));
        exit(0);
    }
    pthread_t thread;
    if (pthread_create(&thread, NULL, waiter, NULL)) die("pthread_create");
    while (!is_blocked()) hold_ms(1);
    pthread_cancel(thread);
    void *result;
    if (pthread_join(thread, &result)) die("pthread_join");
    if (result != PTHREAD_CANCELED || !unwound) return 98;
    close(release[1]);
    reap(child);
    return 0;
}
