/* hard_fds loop|range|unshare
 *
 * Closes every descriptor from 3 on (one by one, by close_range, or by close_range with CLOSE_RANGE_UNSHARE). Then it
 * opens a file, prints its descriptor number, and has children. */
#include "common.h"

int main(int argc, char **argv) {
    if (argc != 2) return 97;
    if (!strcmp(argv[1], "loop")) {
        for (int fd = 3; fd < 4096; fd++) close(fd);
    } else if (syscall(SYS_close_range, 3u, ~0u, strcmp(argv[1], "unshare") ? 0u : 2u) && errno != ENOSYS) {
        die("close_range");
    }
    printf("%d\n", open("/dev/null", O_RDONLY));
    fflush(stdout);
    for (int i = 0; i < 5; i++) {
        pid_t child = fork();
        if (child < 0) die("fork");
        if (!child) execl("/bin/true", "true", (char *)NULL);
        reap(child);
    }
    return 3;
}
