/* seccomp prctl|syscall|strict|clone|clone_reaps|exec|empty|system
 *
 * A child sets a seccomp filter, then exits with status 0. The filter kills at every system call except write and
 * exit_group (strict: except read, write and exit). Any other system call in the process, such as one of a preloaded
 * library, would end it by a signal. Status 0 if the child exited with 0.
 *
 * clone, clone_reaps: the child is made by the clone system call, as browsers do; in the second, it also has a child.
 * exec, empty, system: the child starts a program, with its own environment, with one variable, or by libc's system().
 * These filters kill at system calls of preloaded libraries alone. */
#include "common.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>

#define KILL_AT(number) \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS)

static void set_filter(int by_syscall, struct sock_filter *code, unsigned short length) {
    struct sock_fprog filter = {length, code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) die("no_new_privs");
    if (by_syscall ? syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &filter)
                   : prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter))
        die("filter");
}

int main(int argc, char **argv) {
    struct sock_filter strict[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit_group, 2, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_write, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_filter lax[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        KILL_AT(SYS_getrusage),
        KILL_AT(SYS_madvise),
        KILL_AT(SYS_faccessat),
        KILL_AT(SYS_pidfd_open),
        KILL_AT(SYS_clock_gettime),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const unsigned short strict_length = sizeof strict / sizeof *strict, lax_length = sizeof lax / sizeof *lax;
    if (argc != 2) return 97;
    const char *how = argv[1];
    pid_t child = !strncmp(how, "clone", 5) ? syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0) : fork();
    if (child < 0) die("fork");
    if (!child) {
        burn_cpu(0.05);
        if (!strcmp(how, "strict")) {
            if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT)) die("prctl");
            syscall(SYS_exit, 0);
        }
        if (!strcmp(how, "prctl") || !strcmp(how, "syscall") || !strcmp(how, "clone")) {
            set_filter(!strcmp(how, "syscall"), strict, strict_length);
            exit(0);
        }
        set_filter(0, lax, lax_length);
        char *words[] = {"sh", "-c", "/bin/true; echo \"started in ${PATH:-nothing}\"; exit 0", NULL};
        char *one[] = {"PATH=/usr/bin:/bin", NULL};
        if (!strcmp(how, "exec")) execvp("sh", words);
        if (!strcmp(how, "empty")) execve("/bin/sh", words, one);
        if (!strcmp(how, "system")) exit(system(words[2]) ? 98 : 0);
        if (!strcmp(how, "clone_reaps")) {
            child = fork();
            if (!child) _exit(0);
            reap(child);
            exit(0);
        }
        die(how);
    }
    reap(child);
    return 0;
}
