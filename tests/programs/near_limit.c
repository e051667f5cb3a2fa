/* near_limit exit|abort
 *
 * Reserves address space up to 95% of its RLIMIT_AS, prints "ready", and waits for the end of its standard input. Then it
 * asks for half of the limit, in vain, and exits with 3 or aborts. */
#include "common.h"
#include <sys/resource.h>

int main(int argc, char **argv) {
    if (argc != 2) return 97;
    struct rlimit limit;
    if (getrlimit(RLIMIT_AS, &limit) || limit.rlim_cur == RLIM_INFINITY) return 97;
    size_t all = limit.rlim_cur;
    /* What the program itself has is unknown: take as much as there is, in small pieces. */
    for (size_t taken = 0, piece = all / 100; taken < all / 100 * 95; taken += piece)
        if (mmap(NULL, piece, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0) == MAP_FAILED) break;
    printf("ready\n");
    fflush(stdout);
    char byte;
    while (read(0, &byte, 1) > 0) {}
    volatile char *more = malloc(all / 2);
    if (more) return 98;
    if (!strcmp(argv[1], "abort")) abort();
    return 3;
}
