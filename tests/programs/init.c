/* init COMMAND...
 *
 * A pid namespace's first process as containers have it: runs COMMAND, and waits until nobody is left. */
#include "common.h"
#include <errno.h>
#include <sys/wait.h>

int main(int argc, char **argv) {
    if (argc < 2) return 2;
    pid_t child = fork();
    if (child == 0) {
        execvp(argv[1], argv + 1);
        _exit(127);
    }
    while (wait(NULL) > 0 || errno == EINTR) {}
    return child < 0;
}
