/* A process that uses a fake GPU (tests/fake-nvml). It executes its arguments in order:
 *
 *   hold:K:WORDS    use GPU K as the words say ("500,cg,40": bytes, lists, utilization)
 *   free:K          stop using GPU K
 *   account:K:PEAK  add an accounting entry of this process to the driver
 *   samples:N       wait until N more readings of devices have begun
 *   listings:N      wait until N more listings of devices have begun
 *   script:FILE     replace the fake driver's script
 *   for:N           go on for N milliseconds
 *   wait:FILE       wait until the file exists
 *   touch:FILE      make the file
 *   thread          be listed by the id of a new thread, as by some drivers
 *   host            be listed by the pid in the mounted /proc, not by its own
 *   keep            stay listed after the end, as with some drivers
 *
 * It opens the fake GPU's device file (dev/nvidia0), if there is one.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

static const char *directory;
static char own_name[32];
static int keeps;

static void die(const char *what) {
    perror(what);
    exit(99);
}

static sem_t has_name;

static void *name_by_thread(void *unused) {
    (void)unused;
    snprintf(own_name, sizeof own_name, "%ld", syscall(SYS_gettid));
    sem_post(&has_name);
    for (;;) pause();
}

static void path_of(char *path, size_t room, const char *kind, const char *gpu) {
    snprintf(path, room, "%s/%s/%s.%s", directory, kind, own_name, gpu);
}

/* The file is written under another name and renamed, so that the driver never reads a part of it. */
static void put(const char *path, const char *text) {
    char part[4200];
    snprintf(part, sizeof part, "%s/part.%s", directory, own_name);
    FILE *file = fopen(part, "w");
    if (!file || fputs(text, file) < 0 || fclose(file) || rename(part, path)) die(path);
}

/* How many have begun: the driver writes a byte to this file for each. */
static long begun(const char *what) {
    char path[4096];
    struct stat stat_of;
    snprintf(path, sizeof path, "%s/%s", directory, what);
    return stat(path, &stat_of) ? 0 : stat_of.st_size;
}

int main(int argc, char **argv) {
    char path[4096], text[256];
    directory = getenv("FAKE_NVML_DIR");
    if (!directory) die("FAKE_NVML_DIR");
    snprintf(own_name, sizeof own_name, "%d", (int)getpid());
    snprintf(path, sizeof path, "%s/dev/nvidia0", directory);
    open(path, O_RDONLY);
    for (int i = 1; i < argc; i++) {
        char *what = strtok(argv[i], ":"), *first = strtok(NULL, ":"), *second = strtok(NULL, "");
        if (!strcmp(what, "hold")) {
            for (char *comma; (comma = strchr(second, ','));) *comma = ' ';
            path_of(path, sizeof path, "held", first);
            put(path, second);
        } else if (!strcmp(what, "free")) {
            path_of(path, sizeof path, "held", first);
            unlink(path);
        } else if (!strcmp(what, "account")) {
            struct timeval now;
            gettimeofday(&now, NULL);
            snprintf(text, sizeof text, "%s 12 %lld", second, now.tv_sec * 1000000LL + now.tv_usec);
            path_of(path, sizeof path, "account", first);
            put(path, text);
        } else if (!strcmp(what, "samples") || !strcmp(what, "listings")) {
            long until = begun(what) + atol(first);
            while (begun(what) < until) usleep(1000);
        } else if (!strcmp(what, "script")) {
            snprintf(path, sizeof path, "%s/script", directory);
            if (rename(first, path)) die(first);
        } else if (!strcmp(what, "for")) {
            usleep(1000 * atol(first));
        } else if (!strcmp(what, "wait")) {
            while (access(first, F_OK)) usleep(1000);
        } else if (!strcmp(what, "touch")) {
            FILE *file = fopen(first, "w");
            if (!file || fclose(file)) die(first);
        } else if (!strcmp(what, "thread")) {
            pthread_t thread;
            sem_init(&has_name, 0, 0);
            if (pthread_create(&thread, NULL, name_by_thread, NULL)) die("thread");
            sem_wait(&has_name);
        } else if (!strcmp(what, "host")) {
            ssize_t length = readlink("/proc/self", own_name, sizeof own_name - 1);
            if (length < 0) die("/proc/self");
            own_name[length] = 0;
        } else if (!strcmp(what, "keep")) {
            keeps = 1;
        } else {
            fprintf(stderr, "gpu: %s?\n", what);
            return 98;
        }
    }
    for (int gpu = 0; !keeps && gpu < 16; gpu++) {
        snprintf(text, sizeof text, "%d", gpu);
        path_of(path, sizeof path, "held", text);
        unlink(path);
        for (int part = 0; part < 4; part++) {
            snprintf(text, sizeof text, "%dm%d", gpu, part);
            path_of(path, sizeof path, "held", text);
            unlink(path);
        }
    }
    return 0;
}
