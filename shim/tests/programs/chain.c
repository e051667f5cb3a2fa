// A library that is preloaded behind the shim. Its wait4 and _exit must be called too.
#define _GNU_SOURCE
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

pid_t wait4(pid_t pid, int *status, int options, struct rusage *usage) {
    if (write(1, "wait4\n", 6) != 6) return -1;
    return syscall(SYS_wait4, pid, status, options, usage);
}

void _exit(int status) {
    if (write(1, "_exit\n", 6) != 6) status = 99;
    for (;;) syscall(SYS_exit_group, status);
}
