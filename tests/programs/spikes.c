/* spikes HELD SPIKE
 *
 * A child holds HELD MiB to the end. The first process maps memory for some milliseconds, each time 4 MiB more, up to SPIKE MiB,
 * and lives on after the child. */
#include "common.h"

int main(int argc, char **argv) {
    if (argc != 3) return 97;
    int over[2], ready[2];
    if (pipe(over) || pipe(ready)) die("pipe");
    pid_t child = fork();
    if (child < 0) die("fork");
    if (!child) {
        char byte;
        close(over[1]);
        map_touched((size_t)atoi(argv[1]) << 20, MAP_PRIVATE);
        if (write(ready[1], "", 1) != 1) die("write");
        if (read(over[0], &byte, 1) != 0) die("read");
        exit(0);
    }
    char byte;
    if (read(ready[0], &byte, 1) != 1) die("read");
    for (size_t mib = (size_t)atoi(argv[2]) - 16; mib <= (size_t)atoi(argv[2]); mib += 4) {
        hold_ms(113);
        char *spike = map_touched(mib << 20, MAP_PRIVATE);
        hold_ms(5);
        if (munmap(spike, mib << 20)) die("munmap");
    }
    hold_ms(150);
    close(over[1]);
    if (waitpid(child, NULL, 0) < 0) die("waitpid");
    hold_ms(200);
    return 0;
}
