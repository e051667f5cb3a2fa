/* titles COUNT [ARGUMENT]
 *
 * COUNT fork children each write a title of their own over the arguments, as servers and browsers do, and compute for 0.3 s. The
 * title is longer than the arguments, unless ARGUMENT is long. */
#include "common.h"

extern char **environ;

int main(int argc, char **argv) {
    if (argc < 2) return 97;
    char *end = argv[0];
    for (int i = 0; i < argc; i++) end = argv[i] + strlen(argv[i]) + 1;
    for (int i = 0; environ[i]; i++)
        if (environ[i] == end) end += strlen(end) + 1;
    size_t room = (size_t)(end - argv[0]);
    pid_t children[64];
    int count = atoi(argv[1]);
    if (count > 64) return 97;
    for (int i = 0; i < count; i++) {
        if ((children[i] = fork()) < 0) die("fork");
        if (!children[i]) {
            memset(argv[0], 0, room);
            snprintf(argv[0], room, "/opt/browser/browser --type=renderer --data=/srv/profiles/p%d --client=%d --x", i, i);
            burn_cpu(0.3);
            exit(0);
        }
    }
    for (int i = 0; i < count; i++) reap(children[i]);
    return 0;
}
