/* execs HOW
 *
 * Passes a hand-made environment (only HANDMADE=1) to a shell that has two children, by the given function. It becomes
 * the shell by: execv execve execvp execvpe execl execlp execle fexecve execveat. It reaps the shell as its child
 * after: posix_spawn posix_spawnp pidfd_spawn pidfd_spawnp. Functions without an environment argument get it by
 * `environ`. The shell checks that HANDMADE is set. Status 77: this libc does not have the function. */
#include "common.h"
#include <dlfcn.h>
#include <spawn.h>

extern char **environ;

#define SHELL_LINE "test \"$HANDMADE\" = 1 || exit 3; /bin/true; /bin/true; exit 0"

typedef int (*spawner)(void *, const char *, const posix_spawn_file_actions_t *, const posix_spawnattr_t *,
                       char *const *, char *const *);

static int by_pidfd(const char *name, char **argv, char **envp) {
    spawner spawn = (spawner)dlsym(RTLD_DEFAULT, name);
    if (!spawn) return 77;
    int fd;
    int error = spawn(&fd, "/bin/sh", NULL, NULL, argv, envp);
    if (error == ENOSYS) return 77;
    if (error) die(name);
    siginfo_t info;
    if (waitid((idtype_t)3, (id_t)fd, &info, WEXITED)) die("waitid");
    return info.si_status;
}

int main(int argc, char **argv) {
    if (argc != 2) return 97;
    const char *how = argv[1];
    static char *line[] = {"sh", "-c", SHELL_LINE, NULL};
    static char *made[] = {"HANDMADE=1", NULL};
    if (!strcmp(how, "execve")) execve("/bin/sh", line, made);
    if (!strcmp(how, "execvpe")) execvpe("sh", line, made);
    if (!strcmp(how, "execle")) execle("/bin/sh", "sh", "-c", SHELL_LINE, (char *)NULL, made);
    if (!strcmp(how, "fexecve")) fexecve(open("/bin/sh", O_RDONLY | O_CLOEXEC), line, made);
    if (!strcmp(how, "execveat")) execveat(open("/bin", O_PATH | O_CLOEXEC), "sh", line, made, 0);
    if (!strncmp(how, "pidfd", 5)) return by_pidfd(how, line, made);
    pid_t child = 0;
    if (!strcmp(how, "posix_spawn")) posix_spawn(&child, "/bin/sh", NULL, NULL, line, made);
    if (!strcmp(how, "posix_spawnp")) posix_spawnp(&child, "sh", NULL, NULL, line, made);
    if (child) {
        reap(child);
        return 0;
    }
    environ = made;
    if (!strcmp(how, "execv")) execv("/bin/sh", line);
    if (!strcmp(how, "execvp")) execvp("sh", line);
    if (!strcmp(how, "execl")) execl("/bin/sh", "sh", "-c", SHELL_LINE, (char *)NULL);
    if (!strcmp(how, "execlp")) execlp("sh", "sh", "-c", SHELL_LINE, (char *)NULL);
    return 97;
}
