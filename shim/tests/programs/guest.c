// What a program could notice of the shim: `guest CASE`.
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <malloc.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(x) do { if (!(x)) { fprintf(stderr, "line %d: %s, errno %d\n", __LINE__, #x, errno); _exit(99); } } while (0)

// Kills the process for system calls that the shim's hooks need and the program does not. If a hook makes one after the
// filter is installed, the process ends by SIGSYS instead of with status 0.
static struct sock_filter filter[] = {
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_madvise, 11, 0),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getrusage, 10, 0),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getpid, 9, 0),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getppid, 8, 0),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_futex, 7, 0),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat, 6, 0),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_newfstatat, 5, 0),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_pidfd_open, 4, 0),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mmap, 3, 0),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clock_gettime, 2, 0),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_rt_sigaction, 1, 0),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
};
static struct sock_fprog program = {sizeof filter / sizeof *filter, filter};

static void after_filter(void) {
    int status;
    siginfo_t info;
    pid_t pid = fork();
    if (!pid) exit(0);
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
    if (!(pid = fork())) _exit(0);
    CHECK(!waitid(P_PID, pid, &info, WEXITED) && info.si_code == CLD_EXITED && info.si_status == 0);
    exit(0);
}

static int descriptors(void) {
    DIR *dir = opendir("/proc/self/fd");
    int n = 0;
    while (readdir(dir)) n++;
    closedir(dir);
    return n;
}

static void reap(pid_t pid) {
    int status;
    CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void read_maps(char *text, size_t size) {
    int fd = open("/proc/self/maps", O_RDONLY);
    size_t length = 0;
    for (ssize_t n; (n = read(fd, text + length, size - 1 - length)) > 0;) length += (size_t)n;
    CHECK(length > 0 && length < size - 1 && !close(fd));
    text[length] = 0;
}

static int mallocs;
#ifdef COUNT_MALLOC
void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *malloc(size_t n) { mallocs++; return __libc_malloc(n); }
void *calloc(size_t n, size_t m) { mallocs++; return __libc_calloc(n, m); }
#endif

int main(int argc, char **argv) {
    const char *how = argc > 1 ? argv[1] : "";
    pid_t pid;

    if (!strcmp(how, "errno")) {
        CHECK(errno == 0);
        errno = 1234;
        if (!(pid = fork())) _exit(errno != 1234);
        reap(pid);
        CHECK(errno == 1234);
        if (!(pid = vfork())) _exit(0);
        reap(pid);
        siginfo_t info;
        if (!(pid = fork())) _exit(0);
        CHECK(!waitid(P_ALL, 0, &info, WEXITED));
        CHECK(errno == 1234);
        CHECK(prctl(PR_GET_DUMPABLE) >= 0 && syscall(SYS_getpid) == getpid());
        CHECK(errno == 1234);
        CHECK(syscall(SYS_close, -1) == -1 && errno == EBADF);
        CHECK(prctl(12345) == -1 && errno == EINVAL);
        return 0;
    }
    if (!strcmp(how, "fds")) {
        int before = descriptors();
        if (!(pid = fork())) _exit(descriptors() != before);
        reap(pid);
        CHECK(descriptors() == before);
        printf("%d", before);
        return 0;
    }
    if (!strcmp(how, "close-all")) {
        CHECK(!syscall(SYS_close_range, 0, ~0u, 0));
        if (!(pid = fork())) _exit(0);
        reap(pid);
        return 0;
    }
    if (!strcmp(how, "heap")) {
        // These calls went through the shim. main itself does not allocate.
        char *args[] = {"true", 0}, *env[] = {0};
        if (!(pid = fork())) execve("/bin/true", args, env);
        reap(pid);
        CHECK(mallocs == 0);
        return 0;
    }
    if (!strcmp(how, "maps") || !strcmp(how, "maps-locked") || !strcmp(how, "maps-full")) {
        static char before[1 << 16], after[1 << 16];
        char *args[] = {"none", 0};
        read_maps(after, sizeof after);
        if (strcmp(how, "maps")) CHECK(!mlockall(MCL_CURRENT | MCL_FUTURE));
        struct rlimit none = {1, 1};
        if (!strcmp(how, "maps-full")) CHECK(!setrlimit(RLIMIT_AS, &none));
        read_maps(before, sizeof before);
        errno = 1234;
        if (!(pid = fork())) _exit(errno != 1234);
        reap(pid);
        if (!(pid = vfork())) _exit(0);
        reap(pid);
        CHECK(errno == 1234);
        CHECK(execv("/nonexistent", args) == -1 && errno == ENOENT);
        CHECK(prctl(PR_SET_SECCOMP, 99) == -1);
        read_maps(after, sizeof after);
        CHECK(!strcmp(before, after));
        return 0;
    }
    if (!strcmp(how, "mlockall")) {
        // The limit, in bytes, has space for this program, the shim, and what it maps of the segment.
        CHECK(!setuid(65534));
        struct rlimit limit = {atol(argv[2]), atol(argv[2])};
        CHECK(!setrlimit(RLIMIT_MEMLOCK, &limit));
        CHECK(!mlockall(MCL_CURRENT));
        return 0;
    }
    if (!strcmp(how, "size")) {
        // The size of the address space in bytes, which mlockall compares with the limit.
        static char text[1 << 12];
        int fd = open("/proc/self/status", O_RDONLY);
        CHECK(read(fd, text, sizeof text - 1) > 0 && !close(fd));
        printf("%ld", atol(strstr(text, "VmSize:") + strlen("VmSize:")) * 1024);
        return 0;
    }
    if (!strcmp(how, "seccomp-prctl")) {
        CHECK(!prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) && !prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program));
        after_filter();
    }
    if (!strcmp(how, "seccomp-syscall")) {
        CHECK(!prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
        CHECK(!syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program));
        after_filter();
    }
    if (!strcmp(how, "seccomp-syscall-prctl")) {
        CHECK(!prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
        CHECK(!syscall(SYS_prctl, PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program));
        after_filter();
    }
    if (!strcmp(how, "seccomp-strict")) {
        CHECK(!prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT));
        syscall(SYS_exit, 0);
    }
    if (!strcmp(how, "seccomp-failed")) {
        // No filter is installed, so the process stays tracked.
        CHECK(prctl(PR_SET_SECCOMP, 99) == -1);
        CHECK(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, 0) == -1);
        unsigned action = SECCOMP_RET_ALLOW;
        CHECK(!syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &action));
        return 0;
    }
    if (!strcmp(how, "six-arguments")) {
        // All six reach the kernel. The sixth is passed on the stack.
        int fd = open("/proc/self/exe", O_RDONLY);
        long page = sysconf(_SC_PAGESIZE);
        char *second = (char *)syscall(SYS_mmap, 0, page, PROT_READ, MAP_PRIVATE, fd, page);
        char start[256];
        CHECK(second != MAP_FAILED && pread(fd, start, sizeof start, page) == sizeof start);
        CHECK(!memcmp(second, start, sizeof start));
        return 0;
    }
    if (!strcmp(how, "raw-clone")) {
        pid = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
        if (!pid) _exit(7);
        int status;
        CHECK(waitpid(pid, &status, 0) == pid && WEXITSTATUS(status) == 7);
        return 0;
    }
    fprintf(stderr, "no case %s\n", how);
    return 98;
}
