// A sandbox, from the shim's view: `hidden FILE` starts programs before and after it removes the shim's file.
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;
static char *shell[] = {"sh", "-c", "test -z \"$LD_PRELOAD\"", 0};

static int reap(pid_t pid) {
    int status = -1;
    return waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status) : 92;
}

// 0: the program that posix_spawn starts has no LD_PRELOAD. Its dynamic linker may print an error.
static int spawn(void) {
    pid_t pid;
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
    return posix_spawn(&pid, "/bin/sh", &actions, 0, shell, environ) ? 93 : reap(pid);
}

int main(int argc, char **argv) {
    if (argc != 2 || spawn() != 1 || unlink(argv[1])) return 90;
    pid_t pid = fork();
    if (!pid) _exit(spawn());
    if (reap(pid)) return 91;
    // The memory ends.
    while (spawn()) {}
    execve("/bin/sh", shell, environ);
    return 94;
}
