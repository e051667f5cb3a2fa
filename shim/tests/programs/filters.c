// Seccomp filters of processes that the shim must not mistake for others: `filters CASE [ENTRIES]`. Each filter kills a process
// for the system calls that the shim makes in it, and for those of its constructor that the loader does not make. The environment
// has this many entries more than the case needs.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

#define CHECK(x) do { if (!(x)) { fprintf(stderr, "line %d: %s, errno %d\n", __LINE__, #x, errno); _exit(99); } } while (0)
#define KILLED_FOR(nr) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, nr, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS)

// prctl by an instruction of the program's own.
static long own_prctl(long option, long a, long b) {
#ifdef __x86_64__
    register long c __asm__("r10") = 0, d __asm__("r8") = 0;
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(SYS_prctl), "D"(option), "S"(a), "d"(b), "r"(c), "r"(d) : "rcx", "r11", "memory");
    return result;
#else
    register long number __asm__("x8") = SYS_prctl, x0 __asm__("x0") = option, x1 __asm__("x1") = a, x2 __asm__("x2") = b;
    register long x3 __asm__("x3") = 0, x4 __asm__("x4") = 0;
    __asm__ volatile("svc 0" : "+r"(x0) : "r"(number), "r"(x1), "r"(x2), "r"(x3), "r"(x4) : "memory");
    return x0;
#endif
}

// A filter that a shell survives.
static void filter_getrusage(int is_own) {
    static struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        KILLED_FOR(SYS_getrusage),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof code / sizeof *code, code};
    CHECK(!prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
    if (is_own) CHECK(!own_prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, (long)&program));
    else CHECK(!prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program));
}

static void filter(void) {
    static struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        KILLED_FOR(SYS_getpid),
        KILLED_FOR(SYS_getppid),
        KILLED_FOR(SYS_geteuid),
        KILLED_FOR(SYS_getrusage),
        KILLED_FOR(SYS_madvise),
        KILLED_FOR(SYS_faccessat),
        KILLED_FOR(SYS_fcntl),
        KILLED_FOR(SYS_futex),
        KILLED_FOR(SYS_clock_gettime),
        KILLED_FOR(SYS_pidfd_open),
        KILLED_FOR(SYS_ioctl),
        // mmap, if for more anonymous memory than the loader maps.
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mmap, 0, 4),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[3])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, MAP_PRIVATE | MAP_ANONYMOUS, 0, 2),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[1])),
        BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, 64 << 10, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
    };
    struct sock_fprog program = {sizeof code / sizeof *code, code};
    CHECK(!prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) && !prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program));
}

static int reap(pid_t pid) {
    int status = -1;
    CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// A process of its own with a copy of this memory, which no atfork handler notices.
static pid_t raw_clone(int flags) {
    return syscall(SYS_clone, SIGCHLD | flags, 0, 0, 0, 0);
}

// A library that sandboxes each program.
#ifdef LIBRARY
__attribute__((constructor)) static void constructor(void) { filter(); }
#endif

int main(int argc, char **argv) {
    const char *how = argc > 1 ? argv[1] : "";
    int entries = argc > 2 ? atoi(argv[2]) : 0;
    char *path = argv[0], *show[] = {path, "show", 0};
    pid_t pid;
    siginfo_t info;

    // The program that the others start.
    if (!strcmp(how, "show")) {
        for (char **entry = environ; *entry; entry++) CHECK(write(1, *entry, strlen(*entry)) >= 0 && write(1, "\n", 1) == 1);
        _exit(7);
    }

    if (!strncmp(how, "clone", 5)) {
        pid = raw_clone(!strcmp(how, "clone-namespace") ? CLONE_NEWPID : 0);
        if (!pid) {
            filter();
            if (!strcmp(how, "clone-reap")) {
                CHECK((pid = fork()) >= 0);
                if (!pid) exit(4);
                CHECK(reap(pid) == 4);
                CHECK((pid = fork()) >= 0);
                if (!pid) _exit(5);
                CHECK(!waitid(P_ALL, 0, &info, WEXITED) && info.si_pid == pid && info.si_status == 5);
            }
            if (!strcmp(how, "clone-quick")) quick_exit(7);
            exit(7);
        }
        CHECK(reap(pid) == 7);
        return 0;
    }
    if (!strncmp(how, "vfork", 5)) {
        // The child's filter is none of its parent's, in whose memory the child runs.
        if (!(pid = vfork())) {
            filter();
            if (!strcmp(how, "vfork-exec")) execve(path, show, environ);
            _exit(7);
        }
        if (!strcmp(how, "vfork-system")) CHECK(!system("echo \"$LD_PRELOAD\""));
        if (!strcmp(how, "vfork-waitid")) CHECK(!waitid(P_PID, pid, &info, WEXITED) && info.si_status == 7);
        else CHECK(reap(pid) == 7);
        if (!strcmp(how, "vfork-system")) return WEXITSTATUS(system("echo \"$LD_PRELOAD\"; exit 7"));
        if (!(pid = fork())) exit(8);
        CHECK(reap(pid) == 8);
        return 0;
    }
    if (!strcmp(how, "own-instruction")) {
        filter_getrusage(1);
        return 7;
    }
    // libc starts these programs without a hook.
    if (!strcmp(how, "system")) {
        filter_getrusage(0);
        return WEXITSTATUS(system("echo \"$LD_PRELOAD\"; exit 7"));
    }
    if (!strcmp(how, "inherit")) {
        // The filter of a library's constructor is there already.
        execve(path, show, environ);
    }

    // The others start a program under the filter.
    char **env = calloc(entries + 8, sizeof *env);
    int n = 0;
    env[n++] = "KEEP=\xff";
    for (char **entry = environ; *entry; entry++)
        if (!strncmp(*entry, "LD_PRELOAD=", 11)) env[n++] = *entry;
    for (int i = 0; i < entries; i++) CHECK(asprintf(&env[n++], "E%d=%0100d", i, i) > 0);
    environ = env;
    int fd = open(path, O_PATH | O_CLOEXEC);
    filter();
    if (!strcmp(how, "execve")) execve(path, show, env);
    if (!strcmp(how, "execv")) execv(path, show);
    if (!strcmp(how, "execvp")) execvp(path, show);
    if (!strcmp(how, "execvpe")) execvpe(path, show, env);
    if (!strcmp(how, "execl")) execl(path, path, "show", (char *)0);
    if (!strcmp(how, "fexecve")) fexecve(fd, show, env);
    if (!strcmp(how, "execveat")) execveat(fd, "", show, env, AT_EMPTY_PATH);
    if (!strcmp(how, "syscall-execve")) syscall(SYS_execve, path, show, env);
    if (!strcmp(how, "syscall-execveat")) syscall(SYS_execveat, fd, "", show, env, AT_EMPTY_PATH);
    if (!strcmp(how, "posix_spawn") && !posix_spawn(&pid, path, 0, 0, show, env)) return reap(pid);
    if (!strcmp(how, "fork")) {
        if (!(pid = fork())) execve(path, show, env);
        return reap(pid);
    }
    if (!strcmp(how, "failing")) {
        CHECK(execve("/no/such", show, env) == -1 && errno == ENOENT);
        CHECK(posix_spawn(&pid, "/no/such", 0, 0, show, env) == ENOENT);
        return 7;
    }
    perror(how);
    return 94;
}
