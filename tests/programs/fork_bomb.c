/* fork_bomb COUNT
 *
 * A tree of exactly COUNT processes by fork alone. Each process divides the rest between two children and waits. */
#include "common.h"

static void grow(long count) {
    long left = count - 1;
    pid_t children[2] = {0, 0};
    long parts[2] = {left / 2, left - left / 2};
    for (int i = 0; i < 2; i++) {
        if (!parts[i]) continue;
        if ((children[i] = fork()) < 0) die("fork");
        if (!children[i]) {
            grow(parts[i]);
            exit(0);
        }
    }
    for (int i = 0; i < 2; i++)
        if (children[i]) reap(children[i]);
}

int main(int argc, char **argv) {
    if (argc != 2) return 97;
    grow(atol(argv[1]));
    return 0;
}
