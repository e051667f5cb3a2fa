/* killed SECONDS BYTES
 *
 * A child holds BYTES and burns CPU for ever; it is killed by SIGKILL once its CPU clock shows SECONDS. Prints the
 * child's CPU time in seconds, from wait4. */
#include "common.h"

int main(int argc, char **argv) {
    if (argc != 3) return 97;
    double limit = atof(argv[1]);
    int ready[2];
    if (pipe(ready)) die("pipe");
    pid_t child = fork();
    if (child < 0) die("fork");
    if (!child) {
        map_touched(strtoul(argv[2], NULL, 10), MAP_PRIVATE);
        if (write(ready[1], "", 1) != 1) die("write");
        for (;;) burn_cpu(1);
    }
    char byte;
    if (read(ready[0], &byte, 1) != 1) die("read");
    clockid_t clock;
    if (clock_getcpuclockid(child, &clock)) die("clock_getcpuclockid");
    struct timespec used;
    do {
        hold_ms(1);
        if (clock_gettime(clock, &used)) die("clock_gettime");
    } while ((double)used.tv_sec + (double)used.tv_nsec / 1e9 < limit);
    kill(child, SIGKILL);
    int status;
    struct rusage usage;
    if (wait4(child, &status, 0, &usage) != child) die("wait4");
    if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL) return 98;
    printf("%.6f\n", (double)usage.ru_utime.tv_sec + (double)usage.ru_stime.tv_sec +
                         (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6);
    return 0;
}
