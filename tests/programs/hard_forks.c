/* hard_forks malloc|signal|vfork
 *
 * malloc: four threads allocate without a pause while a fifth forks 200 times; each child allocates too.
 * signal: 200 forks inside a signal handler that interrupts malloc.
 * vfork: 10,000 vforks whose exec finds no program.
 * Prints how many children it reaped; vfork: also how many descriptors and mappings it has more than before. */
#include "common.h"
#include <dirent.h>
#include <pthread.h>
#include <stdatomic.h>

static atomic_int stop, allocating;
static volatile sig_atomic_t reaped;

static void *allocate(void *unused) {
    for (unsigned i = 0; !stop; i++) {
        void *memory = malloc(i * 37 % 5000 + 1);
        if (!memory) die("malloc");
        *(volatile char *)memory = 1;
        free(memory);
        if (i == 1000) allocating++;
    }
    return unused;
}

static void one_child(void) {
    pid_t child = fork();
    if (child < 0) die("fork");
    if (!child) _exit(7);
    int status;
    while (waitpid(child, &status, 0) != child)
        if (errno != EINTR) die("waitpid");
    if (status == 7 << 8) reaped++;
}

static void *fork_often(void *unused) {
    for (int i = 0; i < 200; i++) {
        pid_t child = fork();
        if (child < 0) die("fork");
        if (!child) {
            free(malloc(1000));
            _exit(7);
        }
        int status;
        if (waitpid(child, &status, 0) != child) die("waitpid");
        if (status == 7 << 8) reaped++;
    }
    return unused;
}

static void on_signal(int signal) {
    (void)signal;
    int saved = errno;
    one_child();
    errno = saved;
}

static int open_fds(void) {
    int count = 0;
    for (int fd = 0; fd < 1024; fd++) count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

static int mappings(void) {
    int count = 0, byte;
    FILE *maps = fopen("/proc/self/maps", "r");
    if (!maps) die("maps");
    while ((byte = getc(maps)) != EOF) count += byte == '\n';
    fclose(maps);
    return count;
}

int main(int argc, char **argv) {
    if (argc != 2) return 97;
    pthread_t threads[5];
    if (!strcmp(argv[1], "malloc")) {
        for (int i = 0; i < 4; i++)
            if (pthread_create(&threads[i], NULL, allocate, NULL)) die("pthread_create");
        while (allocating < 4) sched_yield();
        if (pthread_create(&threads[4], NULL, fork_often, NULL)) die("pthread_create");
        pthread_join(threads[4], NULL);
        stop = 1;
        for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
        printf("%d\n", (int)reaped);
        return 5;
    }
    if (!strcmp(argv[1], "signal")) {
        struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
        if (sigaction(SIGALRM, &action, NULL)) die("sigaction");
        pid_t sender = fork();
        if (sender < 0) die("fork");
        if (!sender) {
            /* Signals that come while one is pending merge, so more are sent than handled. */
            for (;;) {
                if (kill(getppid(), SIGALRM)) _exit(0);
                sched_yield();
            }
        }
        while (reaped < 200) free(malloc((size_t)reaped * 10 + 1));
        action.sa_handler = SIG_IGN;
        sigaction(SIGALRM, &action, NULL);
        kill(sender, SIGKILL);
        waitpid(sender, NULL, 0);
        puts(reaped >= 200 ? "enough" : "too few");
        return 6;
    }
    mappings();
    int fds = open_fds(), maps = mappings(), failed = 0;
    char *const arguments[] = {"nowhere", NULL};
    for (int i = 0; i < 10000; i++) {
        pid_t child = vfork();
        if (child < 0) die("vfork");
        if (!child) {
            execvp("/nowhere/to/be/found", arguments);
            _exit(errno == ENOENT ? 127 : 1);
        }
        int status;
        if (waitpid(child, &status, 0) != child) die("waitpid");
        failed += status == 127 << 8;
    }
    printf("%d, %d descriptors more, %d mappings more\n", failed, open_fds() - fds, mappings() - maps);
    return 7;
}
