/* runs TIMES PROGRAM [ARG]...
 *     Runs the program TIMES times, one after another, and waits for each. Linked statically it is an uninstrumented
 *     parent. */
#include "common.h"

int main(int argc, char **argv) {
    if (argc < 3) return 97;
    for (int i = atoi(argv[1]); i > 0; i--) {
        pid_t child = fork();
        if (child < 0) die("fork");
        if (!child) {
            execv(argv[2], argv + 2);
            _exit(127);
        }
        reap(child);
    }
    return 0;
}
