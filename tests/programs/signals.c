/* signals LAST
 *
 * Prints its signal state at start (the lines SigBlk and SigIgn of /proc/self/status) and `ready`. Then it prints `got N`
 * for each signal that it receives, and ends after the signal LAST. */
#include "common.h"

int main(int argc, char **argv) {
    if (argc != 2) return 97;
    sigset_t all;
    char line[256];
    FILE *status = fopen("/proc/self/status", "r");
    if (!status) die("status");
    while (fgets(line, sizeof line, status))
        if (!strncmp(line, "SigBlk", 6) || !strncmp(line, "SigIgn", 6)) fputs(line, stdout);
    fclose(status);
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, NULL);
    puts("ready");
    fflush(stdout);
    for (;;) {
        int number;
        if (sigwait(&all, &number)) die("sigwait");
        printf("got %d\n", number);
        fflush(stdout);
        if (number == atoi(argv[1])) return 0;
    }
}
