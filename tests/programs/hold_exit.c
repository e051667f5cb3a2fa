/* hold_exit TID READY DONE
 *
 * Keeps the thread TID of another process from exiting, as an uninterruptible driver call does. The thread is stopped
 * during its exit until this program ends. Makes the file READY once the thread is traced, and ends when the file DONE
 * exists.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <unistd.h>

int main(int argc, char **argv) {
    if (argc != 4) return 98;
    /* If the test fails, this process ends with it. */
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
