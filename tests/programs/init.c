/* init [-n | -s] COMMAND...
 *
 * The first process of a pid namespace, as in a container: runs COMMAND and waits until it has no child left. With -n it
 * makes the namespace and its first process itself, by a raw clone system call, as bubblewrap does. With -s it becomes a
 * subreaper instead, as tini -s and container managers do.
 */
#include "common.h"
#include <errno.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

int main(int argc, char **argv) {
    if (argc > 2 && strcmp(argv[1], "-n") == 0) {
        ++argv;
        pid_t init = (pid_t)syscall(SYS_clone, SIGCHLD | CLONE_NEWPID, 0, 0, 0, 0);
        if (init < 0) return 2;
        if (init > 0) return waitpid(init, NULL, 0) != init;
    } else if (argc > 2 && strcmp(argv[1], "-s") == 0) {
        ++argv;
        if (prctl(PR_SET_CHILD_SUBREAPER, 1)) return 2;
    } else if (argc < 2) {
        return 2;
    }
    pid_t child = fork();
    if (child == 0) {
        execvp(argv[1], argv + 1);
        _exit(127);
    }
    while (wait(NULL) > 0 || errno == EINTR) {}
    return child < 0;
}
