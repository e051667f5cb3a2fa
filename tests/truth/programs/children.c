/* children N: starts three children N times. The first computes and holds memory, the second runs a shell, and the third
 * leaves an orphan behind. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void compute(long ms) {
    struct timespec now;
    do clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    while (now.tv_sec * 1000 + now.tv_nsec / 1000000 < ms);
}

static void reap(pid_t pid) {
    int status;
    if (pid < 0 || waitpid(pid, &status, 0) != pid || status != 0) exit(1);
}

int main(int argc, char **argv) {
    int n = argc == 2 ? atoi(argv[1]) : 0;
    if (n <= 0) return 2;
    for (int i = 0; i < n; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            size_t size = 8 << 20;
            char *memory = malloc(size);
            if (!memory) _exit(1);
            memset(memory, i, size);
            compute(20);
            _exit(memory[size / 2] != (char)i);
        }
        reap(pid);
        pid = fork();
        if (pid == 0) {
            execl("/bin/sh", "sh", "-c", "seq 100 | wc -l >/dev/null", (char *)0);
            _exit(1);
        }
        reap(pid);
        pid = fork();
        if (pid == 0) {
            pid_t grandchild = fork();
            if (grandchild == 0) compute(10);
            _exit(grandchild < 0);
        }
        reap(pid);
    }
    return 0;
}
