/* open_fds FILE
 *
 * Writes the numbers of the file descriptors that are open at its start to FILE. */
#include "common.h"

int main(int argc, char **argv) {
    if (argc != 2) return 97;
    int open_fds[64], count = 0;
    for (int fd = 0; fd < 1024 && count < 64; fd++)
        if (fcntl(fd, F_GETFD) >= 0) open_fds[count++] = fd;
    FILE *file = fopen(argv[1], "w");
    if (!file) return 99;
    for (int i = 0; i < count; i++) fprintf(file, "%d ", open_fds[i]);
    return fclose(file) ? 99 : 0;
}
