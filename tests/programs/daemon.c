/* daemon libc|double PIDFILE
 *
 * Leaves a daemon behind (by daemon(3), or by fork, setsid and fork) that waits for a signal to end it. The daemon writes
 * its pid to a temporary file and renames it to PIDFILE, so that PIDFILE is complete once it exists. */
#include "common.h"

static void write_pid(const char *pid_file) {
    char name[4096];
    snprintf(name, sizeof name, "%s.new", pid_file);
    FILE *file = fopen(name, "w");
    if (!file || fprintf(file, "%d\n", getpid()) < 0 || fclose(file) || rename(name, pid_file)) die("pid file");
}

int main(int argc, char **argv) {
    if (argc != 3) return 97;
    int ready[2];
    if (pipe(ready)) die("pipe");
    pid_t child = fork();
    if (child < 0) die("fork");
    if (!child) {
        if (!strcmp(argv[1], "libc")) {
            if (daemon(1, 0)) die("daemon");
        } else {
            if (setsid() < 0) die("setsid");
            pid_t second = fork();
            if (second < 0) die("fork");
            if (second) _exit(0);
        }
        write_pid(argv[2]);
        if (write(ready[1], "", 1) != 1) die("write");
        close(ready[0]);
        close(ready[1]);
        for (;;) pause();
    }
    reap(child);
    char byte;
    return read(ready[0], &byte, 1) == 1 ? 0 : 98;
}
