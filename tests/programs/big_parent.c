/* big_parent BYTES COUNT
 *
 * Holds BYTES of touched memory and has COUNT short children, one after another. By turns they are a fork child that
 * exits at once, a fork child that execs /bin/true, and a vfork child that execs /bin/true. */
#include "common.h"

int main(int argc, char **argv) {
    if (argc != 3) return 97;
    map_touched(strtoul(argv[1], NULL, 10), MAP_PRIVATE);
    int count = atoi(argv[2]);
    for (int i = 0; i < count; i++) {
        pid_t child = i % 3 == 2 ? vfork() : fork();
        if (child < 0) die("fork");
        if (!child) {
            if (i % 3 == 0) _exit(0);
            execl("/bin/true", "true", (char *)NULL);
            _exit(99);
        }
        reap(child);
    }
    return 0;
}
