/* hard_env clear|overwrite|big|print
 *
 * Changes its environment and execs itself as `print`. The environment is cleared, overwritten in place (as by programs
 * that change their title in ps), or enlarged by 100,000 bytes. `print` writes the size of the environment that it got,
 * without the variables of gpu-track-run and of the shell. */
#include "common.h"

extern char **environ;

static int print(void) {
    size_t entries = 0, bytes = 0;
    for (char **entry = environ; entry && *entry; entry++) {
        if (!strncmp(*entry, "LD_PRELOAD=", 11) || !strncmp(*entry, "GPU_TRACK_", 10)) continue;
        if (!strncmp(*entry, "_=", 2)) continue;
        entries++;
        bytes += strlen(*entry);
    }
    printf("%zu entries, %zu bytes\n", entries, bytes);
    return 4;
}

int main(int argc, char **argv) {
    if (argc != 2) return 97;
    if (!strcmp(argv[1], "print")) return print();
    if (!strcmp(argv[1], "clear")) {
        clearenv();
    } else if (!strcmp(argv[1], "overwrite")) {
        for (char **entry = environ; *entry; entry++) memset(*entry, 'x', strlen(*entry));
        environ[0] = NULL;
    } else {
        static char name[16], value[101];
        memset(value, 'v', 100);
        for (int i = 0; i < 1000; i++) {
            snprintf(name, sizeof name, "BIG_%d", i);
            if (setenv(name, value, 1)) die("setenv");
        }
    }
    execl("/proc/self/exe", "hard_env", "print", (char *)NULL);
    die("execl");
}
