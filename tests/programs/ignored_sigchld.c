/* ignored_sigchld COUNT SECONDS
 *
 * With SIGCHLD ignored the kernel reaps COUNT fork children itself; each burns SECONDS of CPU. */
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
    /* Blocks until the last child is gone. */
    return wait(NULL) == -1 && errno == ECHILD ? 0 : 98;
}
