// The exec and spawn families: `execs CASE [ENTRIES [NAME]]` starts /bin/sh, by this name, with a hand-made environment. It has this many
// entries more than the case needs.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static char *touch(size_t bytes) {
    char *memory = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(memory, 1, bytes);
    return memory;
}

static long vm_size(void) {
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file || fscanf(file, "%ld", &pages) != 1) exit(90);
    fclose(file);
    return pages;
}

static int reap(pid_t pid) {
    int status = -1;
    if (pid < 0 || waitpid(pid, &status, 0) != pid) exit(91);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 92;
}

#define SCRIPT "tr '\\0' '\\n' </proc/$$/environ"

int main(int argc, char **argv) {
    const char *how = argc > 1 ? argv[1] : "";
    int entries = argc > 2 ? atoi(argv[2]) : 0;
    // Not UTF-8.
    char **env = calloc(entries + 5, sizeof *env);
    int n = 0;
    env[n++] = "KEEP=\xff";
    if (getenv("CASE_PRELOAD")) {
        if (asprintf(&env[n++], "LD_PRELOAD=%s", getenv("CASE_PRELOAD")) < 0) return 93;
    }
    if (getenv("CASE_LIST")) env[n++] = "LD_TRACE_LOADED_OBJECTS=";
    for (int i = 0; i < entries; i++)
        if (asprintf(&env[n++], "E%d=%0100d", i, i) < 0) return 93;
    const char *path = "/bin/sh", *name = "sh";
    char *self = argc > 3 ? argv[3] : "sh";
    char *sh[] = {self, "-c", SCRIPT, 0};
    pid_t pid = -1;

    if (!strcmp(how, "execve")) execve(path, sh, env);
    if (!strcmp(how, "execve-null")) execve(path, sh, 0);
    if (!strcmp(how, "execvpe")) execvpe(name, sh, env);
    if (!strcmp(how, "execle")) execle(path, self, "-c", SCRIPT, (char *)0, env);
    // More arguments than there are registers.
    if (!strcmp(how, "execle-long"))
        execle(path, self, "-c", SCRIPT, "1", "2", "3", "4", "5", "6", "7", "8", "9", (char *)0, env);
    if (!strcmp(how, "fexecve")) fexecve(open(path, O_RDONLY | O_CLOEXEC), sh, env);
#ifdef __GLIBC__
    if (!strcmp(how, "execveat"))
        execveat(open(strndup(path, name - path), O_PATH | O_CLOEXEC), name, sh, env, 0);
#endif
    if (!strcmp(how, "posix_spawn") && !posix_spawn(&pid, path, 0, 0, sh, env)) return reap(pid);
    if (!strcmp(how, "posix_spawnp") && !posix_spawnp(&pid, name, 0, 0, sh, env)) return reap(pid);
    if (!strcmp(how, "vfork")) {
        if (!(pid = vfork())) {
            execve(path, sh, env);
            _exit(94);
        }
        return reap(pid);
    }
    if (!strncmp(how, "environ-", 8)) {
        environ = env;
        how += 8;
        if (!strcmp(how, "execv")) execv(path, sh);
        if (!strcmp(how, "execvp")) execvp(name, sh);
        if (!strcmp(how, "execl")) execl(path, self, "-c", SCRIPT, (char *)0);
        if (!strcmp(how, "execl-long"))
            execl(path, self, "-c", SCRIPT, "1", "2", "3", "4", "5", "6", "7", "8", "9", (char *)0);
        if (!strcmp(how, "execlp")) execlp(name, self, "-c", SCRIPT, (char *)0);
    }

    if (!strcmp(how, "errors")) {
        // Each fails with its own error. The environment needs a repair.
        char *args[] = {"x", 0};
        int bad = 0;
        errno = 0;
        bad += execve("/no/such", args, env) != -1 || errno != ENOENT;
        bad += execle("/etc/passwd", "x", (char *)0, env) != -1 || errno != EACCES;
        bad += execvpe("no-such-program", args, env) != -1 || errno != ENOENT;
        bad += fexecve(-1, args, env) != -1 || errno != EINVAL;
        // The kernel refuses an unreadable path pointer; the shim must not read it.
        const char *nowhere = mmap(0, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        bad += execve(nowhere, args, env) != -1 || errno != EFAULT;
        bad += execv(nowhere, args) != -1 || errno != EFAULT;
        bad += posix_spawn(&pid, nowhere, 0, 0, args, env) != EFAULT;
        bad += execl("/no/such", "x", (char *)0) != -1 || errno != ENOENT;
        bad += execlp("/no/such", "x", (char *)0) != -1 || errno != ENOENT;
        return bad;
    }
    if (!strcmp(how, "spawn-errors")) {
        char *args[] = {"x", 0};
        int bad = posix_spawn(&pid, "/no/such", 0, 0, args, env) != ENOENT;
        bad += posix_spawnp(&pid, "no-such-program", 0, 0, args, env) != ENOENT;
        bad += posix_spawn(&pid, "/etc/passwd", 0, 0, args, env) != EACCES;
        posix_spawn_file_actions_t actions;
        posix_spawn_file_actions_init(&actions);
        posix_spawn_file_actions_addopen(&actions, 0, "/no/such", O_RDONLY, 0);
        bad += posix_spawn(&pid, "/bin/true", &actions, 0, args, env) != ENOENT;
        // libc reaped the children.
        bad += waitpid(-1, 0, 0) != -1 || errno != ECHILD;
        return bad;
    }
    if (!strcmp(how, "lock")) {
        char *args[] = {"true", 0};
        struct flock lock = {.l_type = F_RDLCK};
        int file = open("/bin/true", O_RDONLY | O_CLOEXEC);
        if (fcntl(file, F_SETLK, &lock)) return 96;
        if (posix_spawn(&pid, "/bin/true", 0, 0, args, env) || reap(pid)) return 97;
        pid_t owner = getpid();
        if ((pid = fork())) return reap(pid);
        // Another process asks which lock is in the way of its own.
        lock.l_type = F_WRLCK;
        _exit(fcntl(file, F_GETLK, &lock) || lock.l_type != F_RDLCK || lock.l_pid != owner);
    }
    if (!strcmp(how, "vforks")) {
        char *args[] = {"true", 0};
        long before = 0;
        for (int i = 0; i < 10000; i++) {
            if (!(pid = vfork())) {
                // An exec that fails leaves the same in the parent's memory, and costs a tenth of one that succeeds.
                if (i % 40) execve("/no/such", args, env);
                if (i % 20) _exit(0);
                execve("/bin/true", args, env);
                _exit(94);
            }
            if (reap(pid)) return 95;
            if (i == 10) before = vm_size();
        }
        long grown = vm_size() - before;
        if (grown) fprintf(stderr, "grew by %ld pages\n", grown);
        return grown != 0;
    }
    if (!strcmp(how, "big-parent")) {
        touch(300 << 20);
        if (!(pid = fork())) {
            execl("/bin/true", "true", (char *)0);
            _exit(94);
        }
        return reap(pid);
    }
    if (!strcmp(how, "chain")) {
        touch(300 << 20);
        execl(argv[0], argv[0], "chain-middle", (char *)0);
    }
    if (!strcmp(how, "chain-middle")) execl("/bin/true", "true", (char *)0);
    perror(how);
    return 94;
}
