/* late_names DIRECTORY PLACE SECONDS   mounts DIRECTORY at PLACE, and shows names there late, as a client of a network file system
 *                                      with a cache of names can: one that another mount made is not found, nor listed, until
 *                                      so many seconds after it was first asked for. Names that were there before show at once, and
 *                                      so do those that are made here. It ends when PLACE is unmounted. */
#define FUSE_USE_VERSION 31
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fuse3/fuse.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static const char *directory;
static time_t delay_s;
/* The names that are known here, each with when it shows. One thread serves all requests. */
static struct name { char *path; time_t shows_at; struct name *next; } *names;

static time_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec;
}

static const char *real(const char *path) {
    static char full[2][4096];
    static int which;
    which = !which;
    snprintf(full[which], sizeof full[which], "%s%s", directory, path);
    return full[which];
}

static struct name *known(const char *path) {
    for (struct name *name = names; name; name = name->next)
        if (!strcmp(name->path, path)) return name;
    return NULL;
}

static void show(const char *path, time_t at) {
    struct name *name = known(path);
    if (!name) {
        name = calloc(1, sizeof *name);
        name->path = strdup(path);
        name->next = names;
        names = name;
    }
    name->shows_at = at;
}

/* Whether a name that is there is not to be seen yet. */
static int is_late(const char *path) {
    struct stat status;
    if (!strcmp(path, "/") || lstat(real(path), &status)) return 0;
    if (!known(path)) show(path, now() + delay_s);
    return now() < known(path)->shows_at;
}

static int result(long done) { return done < 0 ? -errno : 0; }

static int op_getattr(const char *path, struct stat *status, struct fuse_file_info *info) {
    (void)info;
    return is_late(path) ? -ENOENT : result(lstat(real(path), status));
}
static int op_readdir(const char *path, void *list, fuse_fill_dir_t add, off_t at, struct fuse_file_info *info, enum fuse_readdir_flags flags) {
    (void)at, (void)info, (void)flags;
    DIR *open = opendir(real(path));
    if (!open) return -errno;
    for (struct dirent *entry; (entry = readdir(open));) {
        char whole[4096];
        snprintf(whole, sizeof whole, "%s/%s", strcmp(path, "/") ? path : "", entry->d_name);
        int is_dots = !strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..");
        if (is_dots || !is_late(whole)) add(list, entry->d_name, NULL, 0, 0);
    }
    closedir(open);
    return 0;
}
static int op_open(const char *path, struct fuse_file_info *info) {
    int fd = is_late(path) ? (errno = ENOENT, -1) : open(real(path), info->flags & ~(O_CREAT | O_EXCL));
    info->fh = (uint64_t)fd;
    info->direct_io = 1;
    return result(fd);
}
static int op_create(const char *path, mode_t mode, struct fuse_file_info *info) {
    int fd = open(real(path), info->flags, mode);
    if (fd >= 0) show(path, now());
    info->fh = (uint64_t)fd;
    info->direct_io = 1;
    return result(fd);
}
static int op_mkdir(const char *path, mode_t mode) {
    int done = mkdir(real(path), mode);
    if (!done) show(path, now());
    return result(done);
}
static int op_symlink(const char *target, const char *path) {
    int done = symlink(target, real(path));
    if (!done) show(path, now());
    return result(done);
}
static int op_rename(const char *from, const char *to, unsigned flags) {
    int done = renameat2(AT_FDCWD, real(from), AT_FDCWD, real(to), flags);
    if (!done) show(to, now());
    return result(done);
}
static int op_read(const char *path, char *to, size_t size, off_t at, struct fuse_file_info *info) {
    (void)path;
    ssize_t done = pread((int)info->fh, to, size, at);
    return done < 0 ? -errno : (int)done;
}
static int op_write(const char *path, const char *from, size_t size, off_t at, struct fuse_file_info *info) {
    (void)path;
    ssize_t done = pwrite((int)info->fh, from, size, at);
    return done < 0 ? -errno : (int)done;
}
static int op_readlink(const char *path, char *to, size_t size) {
    ssize_t done = readlink(real(path), to, size - 1);
    if (done >= 0) to[done] = 0;
    return result(done);
}
static int op_release(const char *path, struct fuse_file_info *info) { (void)path; return result(close((int)info->fh)); }
static int op_truncate(const char *path, off_t size, struct fuse_file_info *info) { (void)info; return result(truncate(real(path), size)); }
static int op_chmod(const char *path, mode_t mode, struct fuse_file_info *info) { (void)info; return result(chmod(real(path), mode)); }
static int op_unlink(const char *path) { return result(unlink(real(path))); }
static int op_rmdir(const char *path) { return result(rmdir(real(path))); }
static int op_fsync(const char *path, int only_data, struct fuse_file_info *info) { (void)path, (void)only_data; return result(fsync((int)info->fh)); }
static int op_flock(const char *path, struct fuse_file_info *info, int operation) { (void)path; return result(flock((int)info->fh, operation)); }

static void list(const char *path) {
    DIR *open = opendir(real(path));
    for (struct dirent *entry; open && (entry = readdir(open));) {
        char whole[4096];
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..")) continue;
        snprintf(whole, sizeof whole, "%s/%s", strcmp(path, "/") ? path : "", entry->d_name);
        show(whole, 0);
        list(whole);
    }
    if (open) closedir(open);
}

int main(int argc, char **argv) {
    if (argc != 4) return 2;
    directory = argv[1];
    delay_s = atoi(argv[3]);
    list("/");
    static const struct fuse_operations operations = {
        .getattr = op_getattr, .readdir = op_readdir, .open = op_open, .create = op_create, .mkdir = op_mkdir,
        .symlink = op_symlink, .rename = op_rename, .read = op_read, .write = op_write, .readlink = op_readlink,
        .release = op_release, .truncate = op_truncate, .chmod = op_chmod, .unlink = op_unlink, .rmdir = op_rmdir,
        .fsync = op_fsync, .flock = op_flock};
    /* One thread, and nothing cached by the kernel: what shows is decided here. */
    char *options[] = {argv[0], "-s", "-o", "attr_timeout=0,entry_timeout=0,negative_timeout=0,default_permissions", argv[2], NULL};
    return fuse_main(5, options, &operations, NULL);
}
