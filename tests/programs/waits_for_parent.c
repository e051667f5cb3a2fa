/* waits_for_parent PID
 *
 * Leaves a daemon that begins its work when process PID is its parent: daemons that wait for getppid() == 1 do so. */
#include "common.h"

int main(int argc, char **argv) {
    if (argc != 2) return 97;
    pid_t parent = atoi(argv[1]), child = fork();
    if (child < 0) die("fork");
    if (child) return 0;
    if (setsid() < 0) die("setsid");
    while (getppid() != parent) usleep(1000);
    puts("work done");
    return 0;
}
