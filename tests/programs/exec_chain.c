/* exec_chain BYTES
 *
 * Touches BYTES, then execs itself without an argument; that image execs /bin/true. So one process has three images. */
#include "common.h"

int main(int argc, char **argv) {
    if (argc == 2) {
        map_touched(strtoul(argv[1], NULL, 10), MAP_PRIVATE);
        execl("/proc/self/exe", "exec_chain", (char *)NULL);
    } else {
        execl("/bin/true", "true", (char *)NULL);
    }
    die("execl");
}
