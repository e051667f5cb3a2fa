/* Keeps a thread of another process from ending, as a call of a driver does that can't be interrupted: the thread is
 * stopped on its way out until this program ends.
 *
 *   hold_exit TID READY DONE    make the file READY when TID is held, and end when there is a file DONE
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <unistd.h>

int main(int argc, char **argv) {
    if (argc != 4) return 98;
    /* A test that gives up leaves nothing behind. */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (ptrace(PTRACE_SEIZE, (pid_t)atoi(argv[1]), NULL, PTRACE_O_TRACEEXIT)) {
        perror("PTRACE_SEIZE");
        return 1;
    }
    FILE *ready = fopen(argv[2], "w");
    if (!ready || fclose(ready)) return 99;
    while (access(argv[3], F_OK)) usleep(1000);
    return 0;
}
