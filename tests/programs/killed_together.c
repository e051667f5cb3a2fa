/* killed_together HOW CHILDREN MIB
 *
 * CHILDREN fork children hold MIB each. Once all do, each ends without an EXIT record: by SIGKILL of the parent (HOW is kill),
 * by abort or by a segmentation fault (segv). */
#include "common.h"

int main(int argc, char **argv) {
    if (argc != 4) return 97;
    int children = atoi(argv[2]);
    pid_t pids[64];
    int ready[2], go[2];
    if (children > 64 || pipe(ready) || pipe(go)) die("pipe");
    for (int i = 0; i < children; i++) {
        pids[i] = fork();
        if (pids[i] < 0) die("fork");
        if (!pids[i]) {
            char byte;
            close(go[1]);
            map_touched((size_t)atoi(argv[3]) << 20, MAP_PRIVATE);
            if (write(ready[1], "", 1) != 1) die("write");
            if (!strcmp(argv[1], "kill")) pause();
            if (read(go[0], &byte, 1) != 0) die("read");
            if (!strcmp(argv[1], "abort")) abort();
            raise(SIGSEGV);
        }
    }
    char byte;
    for (int i = 0; i < children; i++)
        if (read(ready[0], &byte, 1) != 1) die("read");
    if (!strcmp(argv[1], "kill"))
        for (int i = 0; i < children; i++) kill(pids[i], SIGKILL);
    close(go[1]);
    for (int i = 0; i < children; i++) {
        int status;
        if (waitpid(pids[i], &status, 0) < 0 || !WIFSIGNALED(status)) return 98;
    }
    return 0;
}
