/* ignored_sigchld COUNT SECONDS
 *
 * Ignores SIGCHLD, so that the kernel itself reaps the COUNT fork children. Each burns SECONDS of CPU. */
#include "common.h"

int main(int argc, char **argv) {
    if (argc != 3) return 97;
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
