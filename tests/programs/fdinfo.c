/* A process with an open DRM file, as a made-up root has it: each of the contents is in ROOT/proc/PID/fdinfo/5 until it
 * was read, and what was read is handed on, before the next takes its place.
 *
 *   fdinfo ROOT CONTENT...
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

static void must(int is_right, const char *what) {
    if (is_right) return;
    perror(what);
    exit(99);
}

int main(int argc, char **argv) {
    char directory[4096], part[4200], path[4200];
    _Alignas(struct inotify_event) char event[sizeof(struct inotify_event) + 256];
    if (argc < 3) return 98;
    snprintf(directory, sizeof directory, "%s/proc/%d", argv[1], (int)getpid());
    snprintf(part, sizeof part, "%s/part", directory);
    snprintf(path, sizeof path, "%s/proc", argv[1]);
    mkdir(path, 0755);
    must(!mkdir(directory, 0755), directory);
    snprintf(directory, sizeof directory, "%s/proc/%d/fdinfo", argv[1], (int)getpid());
    must(!mkdir(directory, 0755), directory);
    snprintf(path, sizeof path, "%s/5", directory);
    int watch = inotify_init1(0);
    must(watch >= 0 && inotify_add_watch(watch, directory, IN_OPEN) >= 0, "inotify");
    for (int i = 2; i < argc; i++) {
        FILE *file = fopen(part, "w");
        must(file && fputs(argv[i], file) >= 0 && !fclose(file) && !rename(part, path), path);
        /* The directory itself is opened too, which is an event without a name. One reading may have opened what was
         * here before; the next but one begins when the first of this content is done. */
        for (int opened = 0; opened < 4;) {
            struct inotify_event *first = (struct inotify_event *)event;
            must(read(watch, event, sizeof *first + 16) > 0, "inotify");
            opened += first->len > 0;
        }
    }
    return 0;
}
