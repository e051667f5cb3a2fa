/* ignored_sigchld COUNT SECONDS [BEFORE]
 *
 * With BEFORE, waits for a fork child that burns BEFORE seconds of CPU. Then it ignores SIGCHLD, so that the kernel
 * itself reaps the COUNT fork children that follow. Each burns SECONDS of CPU. */
#include "common.h"

int main(int argc, char **argv) {
    if (argc < 3) return 97;
    if (argc > 3) {
        pid_t waited_for = fork();
        if (waited_for < 0) die("fork");
        if (!waited_for) {
            burn_cpu(atof(argv[3]));
            exit(0);
        }
        if (waitpid(waited_for, NULL, 0) != waited_for) return 96;
    }
    signal(SIGCHLD, SIG_IGN);
    for (int i = 0; i < atoi(argv[1]); i++) {
        pid_t child = fork();
        if (child < 0) die("fork");
        if (!child) {
            burn_cpu(atof(argv[2]));
            exit(0);
        }
    }
    /* With SIGCHLD ignored, wait blocks until the last child has ended and then fails with ECHILD. */
    return wait(NULL) == -1 && errno == ECHILD ? 0 : 98;
}
