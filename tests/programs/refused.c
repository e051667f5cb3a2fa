/* refused locks|cmdline COMMAND [ARGUMENT]...
 *
 * Executes COMMAND where a system call fails:
 *
 * locks: fcntl(2) can't lock, as on some network file systems: F_SETLK fails with ENOLCK.
 * cmdline: no process may change its own command line. prctl(2) fails for PR_SET_MM with EINVAL, as where the kernel was built without
 * CONFIG_CHECKPOINT_RESTORE. */
#include "common.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>

int main(int argc, char **argv) {
    if (argc < 3) return 97;
    const int is_locks = !strcmp(argv[1], "locks");
    if (!is_locks && strcmp(argv[1], "cmdline")) return 97;
    const unsigned call = is_locks ? SYS_fcntl : SYS_prctl, value = is_locks ? F_SETLK : PR_SET_MM;
    const unsigned at = offsetof(struct seccomp_data, args) + (is_locks ? 8 : 0), error = is_locks ? ENOLCK : EINVAL;
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 3),
        /* The low half, where the least significant byte is the first. */
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, at),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {sizeof code / sizeof *code, code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) die("no_new_privs");
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter)) die("prctl");
    execvp(argv[2], argv + 2);
    die("execvp");
}
