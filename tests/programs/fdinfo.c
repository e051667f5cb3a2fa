/* fdinfo ROOT CONTENT...
 *
 * Imitates a process with an open DRM file below the directory ROOT. Each CONTENT is in ROOT/proc/PID/fdinfo/5 until a
 * reading of it is complete; then the next one replaces it.
 *
 * In a CONTENT, @P is replaced by P percent of the time since the program's start, in nanoseconds. It is renewed for a
 * hundred readings. @P/N is renewed at every Nth of those only, and @P:N for N readings.
 *
 * With FDINFO_NODE, the descriptor is a link to that device node.
 */
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static void must(int is_right, const char *what) {
    if (is_right) return;
    perror(what);
    exit(99);
}

static char part[4200], path[4200];
static int watch;

static unsigned long long now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000ull + now.tv_nsec;
}

static void show(const char *content, const char *counter, unsigned long long ns) {
    FILE *file = fopen(part, "w");
    must(!!file, part);
    if (counter)
        fprintf(file, "%.*s%llu%s", (int)(counter - content), content, ns, counter + 1 + strspn(counter + 1, "0123456789/:"));
    else
        fputs(content, file);
    must(!fclose(file) && !rename(part, path), path);
}

/* How often the file was opened since the last call; with `waits`, blocks until it was opened. */
static int times_opened(int waits) {
    _Alignas(struct inotify_event) char event[sizeof(struct inotify_event) + 16];
    struct inotify_event *open_event = (struct inotify_event *)event;
    struct pollfd readable = {watch, POLLIN, 0};
    int opened = 0;
    while ((waits && !opened) || poll(&readable, 1, 0) > 0) {
        must(read(watch, event, sizeof event) > 0, "inotify");
        /* An open of the directory itself gives an event without a name. */
        opened += open_event->len > 0 && !strcmp(open_event->name, "5");
    }
    return opened;
}

int main(int argc, char **argv) {
    char directory[4096];
    unsigned long long start_ns = now_ns();
    if (argc < 3) return 98;
    snprintf(path, sizeof path, "%s/proc", argv[1]);
    mkdir(path, 0755);
    snprintf(directory, sizeof directory, "%s/proc/%d", argv[1], (int)getpid());
    snprintf(part, sizeof part, "%s/part", directory);
    must(!mkdir(directory, 0755), directory);
    snprintf(directory, sizeof directory, "%s/proc/%d/fdinfo", argv[1], (int)getpid());
    must(!mkdir(directory, 0755), directory);
    snprintf(path, sizeof path, "%s/5", directory);
    if (getenv("FDINFO_NODE")) {
        char link[4200];
        snprintf(link, sizeof link, "%s/proc/%d/fd", argv[1], (int)getpid());
        must(!mkdir(link, 0755), link);
        strcat(link, "/5");
        must(!symlink(getenv("FDINFO_NODE"), link), link);
    }
    watch = inotify_init1(0);
    must(watch >= 0 && inotify_add_watch(watch, directory, IN_OPEN) >= 0, "inotify");
    for (int i = 2; i < argc; i++) {
        const char *counter = strchr(argv[i], '@');
        int percent = 0, number = 0, every = 1, most = counter ? 100 : 3;
        char kind = 0;
        if (counter) sscanf(counter, "@%d%c%d", &percent, &kind, &number);
        if (kind == '/') every = number;
        if (kind == ':') most = number;
        show(argv[i], counter, 0);
        /* The first open may be of the content before. The third open means that a reading of this content is complete. */
        for (int opened = 0; opened < most;) {
            int is_renewed = counter && (opened + 1) % every == 0;
            if (is_renewed) show(argv[i], counter, (now_ns() - start_ns) / 100 * percent);
            opened += times_opened(!is_renewed);
        }
    }
    return 0;
}
