/* seccomp prctl|syscall|strict
 *
 * A child sets a seccomp filter, then exits with status 0. The filter kills at every system call except write and
 * exit_group (strict: except read, write and exit). Any other system call in the process, such as one of a preloaded
 * library, would end it by a signal. Status 0 if the child exited with 0. */
#include "common.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>

int main(int argc, char **argv) {
    if (argc != 2) return 97;
    pid_t child = fork();
    if (child < 0) die("fork");
    if (!child) {
        struct sock_filter code[] = {
            BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
            BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit_group, 2, 0),
            BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_write, 1, 0),
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        };
        struct sock_fprog filter = {sizeof code / sizeof *code, code};
        burn_cpu(0.05);
        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) die("no_new_privs");
        if (!strcmp(argv[1], "strict")) {
            if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT)) die("prctl");
            syscall(SYS_exit, 0);
        }
        if (!strcmp(argv[1], "prctl") && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter)) die("prctl");
        if (!strcmp(argv[1], "syscall") && syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &filter))
            die("seccomp");
        exit(0);
    }
    reap(child);
    return 0;
}
