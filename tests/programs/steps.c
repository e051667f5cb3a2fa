/* steps                 does what each line of its standard input says, and then writes a line:
 * burn SECONDS          uses CPU time
 * touch BYTES           touches memory, and unmaps it
 * hold BYTES            touches memory, and keeps it
 * write FILE BYTES      writes so much to a file, and waits until the storage has it
 * fork SECONDS          waits for a fork child that uses CPU time
 * child SECONDS         has a fork child that uses CPU time, and then again at each `wake`
 * wake                  has that child use CPU time, and waits until it has
 * exec PROGRAM A B C     becomes another program, without a line */
#include "common.h"

static int to_child = -1, from_child = -1;

static void child(double seconds) {
    int wake[2], done[2];
    char byte = 1;
    if (pipe(wake) || pipe(done)) die("pipe");
    pid_t pid = fork();
    if (pid < 0) die("fork");
    if (!pid) {
        close(wake[1]);
        do {
            burn_cpu(seconds);
            if (write(done[1], &byte, 1) != 1) die("write");
        } while (read(wake[0], &byte, 1) == 1);
        _exit(0);
    }
    close(wake[0]);
    to_child = wake[1];
    from_child = done[0];
    if (read(from_child, &byte, 1) != 1) die("read");
}

int main(void) {
    char line[512], word[32], a[256], b[64], c[64], d[64];
    while (fgets(line, sizeof line, stdin)) {
        int words = sscanf(line, "%31s %255s %63s %63s %63s", word, a, b, c, d);
        if (words < 1) continue;
        if (!strcmp(word, "burn")) {
            burn_cpu(atof(a));
        } else if (!strcmp(word, "touch")) {
            size_t bytes = strtoul(a, NULL, 10);
            munmap(map_touched(bytes, MAP_PRIVATE), bytes);
        } else if (!strcmp(word, "hold")) {
            map_touched(strtoul(a, NULL, 10), MAP_PRIVATE);
        } else if (!strcmp(word, "write")) {
            size_t bytes = strtoul(b, NULL, 10);
            char *memory = map_touched(bytes, MAP_PRIVATE);
            int file = open(a, O_WRONLY | O_CREAT | O_TRUNC, 0600);
            if (file < 0 || write(file, memory, bytes) != (ssize_t)bytes || fsync(file)) die("write");
            close(file);
            munmap(memory, bytes);
        } else if (!strcmp(word, "fork")) {
            pid_t pid = fork();
            if (pid < 0) die("fork");
            if (!pid) {
                burn_cpu(atof(a));
                _exit(0);
            }
            reap(pid);
        } else if (!strcmp(word, "child")) {
            child(atof(a));
        } else if (!strcmp(word, "wake")) {
            char byte = 1;
            if (write(to_child, &byte, 1) != 1 || read(from_child, &byte, 1) != 1) die("wake");
        } else if (!strcmp(word, "exec") && words == 5) {
            execl(a, a, b, c, d, (char *)NULL);
            die("exec");
        } else {
            return 97;
        }
        printf("ok\n");
        fflush(stdout);
    }
    return 7;
}
