/* delayfs MS DIRECTORY
 *
 * Mounts a FUSE file system on the directory. It has one file, `slow`, and each read of it takes MS milliseconds.
 * Writes "ready" when it is mounted; SIGTERM unmounts it. Needs libfuse 3 (cc $(pkg-config --cflags --libs fuse3)). */
#define FUSE_USE_VERSION 31
#include "common.h"
#include <fuse.h>
#include <sys/stat.h>

#define FILE_BYTES 4096

static long delay_ms;

static void *ready(struct fuse_conn_info *connection, struct fuse_config *config) {
    (void)connection;
    /* Without the page cache each read comes here. */
    config->direct_io = 1;
    puts("ready");
    fflush(stdout);
    return NULL;
}

static int attributes(const char *path, struct stat *status, struct fuse_file_info *file) {
    (void)file;
    int is_file = !strcmp(path, "/slow");
    if (!is_file && strcmp(path, "/")) return -ENOENT;
    status->st_mode = is_file ? S_IFREG | 0444 : S_IFDIR | 0555;
    status->st_nlink = is_file ? 1 : 2;
    status->st_size = is_file ? FILE_BYTES : 0;
    return 0;
}

static int read_late(const char *path, char *block, size_t bytes, off_t offset, struct fuse_file_info *file) {
    (void)path;
    (void)offset;
    (void)file;
    if (bytes > FILE_BYTES) bytes = FILE_BYTES;
    hold_ms(delay_ms);
    memset(block, 1, bytes);
    return (int)bytes;
}

int main(int argc, char **argv) {
    static const struct fuse_operations operations = {.init = ready, .getattr = attributes, .read = read_late};
    if (argc != 3) return 97;
    delay_ms = atol(argv[1]);
    char *words[] = {argv[0], "-f", "-s", argv[2], NULL};
    return fuse_main(4, words, &operations, NULL);
}
