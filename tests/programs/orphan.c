/* orphan MIB
 *
 * Leaves an orphan behind that holds MIB of memory for 1 s, while a child of it computes for 0.3 s. Ends when both have ended. */
#include "common.h"

int main(int argc, char **argv) {
    if (argc != 2) return 97;
    int ended[2];
    if (pipe(ended)) die("pipe");
    pid_t child = fork();
    if (child < 0) die("fork");
    if (!child) {
        if (setsid() < 0) die("setsid");
        pid_t orphan = fork();
        if (orphan < 0) die("fork");
        if (orphan) _exit(0);
        map_touched((size_t)atol(argv[1]) << 20, MAP_PRIVATE);
        pid_t grandchild = fork();
        if (grandchild < 0) die("fork");
        if (!grandchild) {
            burn_cpu(0.3);
            _exit(0);
        }
        hold_ms(1000);
        reap(grandchild);
        _exit(0);
    }
    reap(child);
    close(ended[1]);
    char byte;
    return read(ended[0], &byte, 1) == 0 ? 0 : 98;
}
