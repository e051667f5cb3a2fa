// The wait family: `waits CASE`. Children end with status 21 or by SIGKILL.
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(x) do { if (!(x)) { fprintf(stderr, "line %d: %s, errno %d\n", __LINE__, #x, errno); _exit(99); } } while (0)

static pid_t child(int status) {
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (!pid) _exit(status);
    return pid;
}

static void await_zombie(pid_t pid) {
    siginfo_t info;
    CHECK(!waitid(P_PID, pid, &info, WEXITED | WNOWAIT));
}

static int cleaned, ready[2], hold[2];

// A child that lives until the write end of `hold` is closed.
static pid_t held_child(int signal) {
    char byte;
    CHECK(!pipe(hold));
    pid_t pid = fork();
    if (!pid) {
        close(hold[1]);
        if (signal) raise(signal);
        _exit(read(hold[0], &byte, 1) == 0 ? 21 : 98);
    }
    return pid;
}

static void clean(void *_) { (void)_; cleaned = 1; }
static pid_t holder;
static int with_waitid;

static void *blocked(void *_) {
    (void)_;
    siginfo_t info;
    int status;
    pthread_cleanup_push(clean, 0);
    CHECK(write(ready[1], "", 1) == 1);
    if (with_waitid) waitid(P_PID, holder, &info, WEXITED);
    else waitpid(holder, &status, 0);
    pthread_cleanup_pop(0);
    return 0;
}

// A thread that is cancelled in a wait runs its cleanup handler, and the child can still be reaped.
static void cancel(void) {
    char byte;
    pthread_t thread;
    void *result;
    int status;
    CHECK(!pipe(ready));
    holder = held_child(0);
    CHECK(!pthread_create(&thread, 0, blocked, 0));
    CHECK(read(ready[0], &byte, 1) == 1);
    CHECK(!pthread_cancel(thread) && !pthread_join(thread, &result));
    CHECK(result == PTHREAD_CANCELED && cleaned);
    close(hold[1]);
    CHECK(waitpid(holder, &status, 0) == holder && WEXITSTATUS(status) == 21);
}

static void *reap_many(void *count) {
    siginfo_t info;
    for (;;) {
        int failed = with_waitid ? waitid(P_ALL, 0, &info, WEXITED) : waitpid(-1, 0, 0) < 0;
        if (failed) {
            CHECK(errno == ECHILD);
            return 0;
        }
        __atomic_add_fetch((int *)count, 1, __ATOMIC_SEQ_CST);
    }
}

int main(int argc, char **argv) {
    const char *how = argc > 1 ? argv[1] : "";
    int status = -1;
    struct rusage usage;
    siginfo_t info;
    memset(&info, 0, sizeof info);
    memset(&usage, 0xff, sizeof usage);
    pid_t pid;
    errno = 0;

    if (!strcmp(how, "wait")) { pid = child(21); CHECK(wait(&status) == pid); }
    if (!strcmp(how, "waitpid")) { pid = child(21); CHECK(waitpid(pid, &status, 0) == pid); }
    if (!strcmp(how, "waitpid-any")) { pid = child(21); CHECK(waitpid(-1, &status, 0) == pid); }
    if (!strcmp(how, "waitpid-group")) { pid = child(21); CHECK(waitpid(0, &status, 0) == pid); }
    if (!strcmp(how, "wait3")) { pid = child(21); CHECK(wait3(&status, 0, &usage) == pid); CHECK(usage.ru_maxrss >= 0 && usage.ru_stime.tv_sec == 0); }
    if (!strcmp(how, "wait3-null")) { pid = child(21); CHECK(wait3(&status, 0, 0) == pid); }
    if (!strcmp(how, "wait4")) { pid = child(21); CHECK(wait4(pid, &status, 0, &usage) == pid); CHECK(usage.ru_stime.tv_sec == 0); }
    if (!strcmp(how, "null-status")) { pid = child(21); CHECK(waitpid(pid, 0, 0) == pid); status = 21 << 8; }
    if (!strcmp(how, "waitid")) {
        pid = child(21);
        CHECK(!waitid(P_PID, pid, &info, WEXITED));
        CHECK(info.si_pid == pid && info.si_code == CLD_EXITED && info.si_signo == SIGCHLD && info.si_uid == getuid());
        status = info.si_status << 8;
    }
    if (!strcmp(how, "waitid-null")) { pid = child(21); CHECK(!waitid(P_ALL, 0, 0, WEXITED)); status = 21 << 8; }
    if (!strcmp(how, "nowait")) {
        pid = child(21);
        await_zombie(pid);
        CHECK(waitpid(pid, &status, WNOHANG) == pid);
    }
    if (!strcmp(how, "nohang")) {
        // The child is alive, so neither call reaps it.
        pid = held_child(0);
        CHECK(waitpid(pid, &status, WNOHANG) == 0);
        info.si_pid = 1;
        CHECK(!waitid(P_PID, pid, &info, WEXITED | WNOHANG) && info.si_pid == 0);
        close(hold[1]);
        CHECK(waitpid(pid, &status, 0) == pid);
    }
    if (!strcmp(how, "no-child")) {
        CHECK(wait(&status) == -1 && errno == ECHILD);
        CHECK(waitid(P_ALL, 0, &info, WEXITED) == -1 && errno == ECHILD);
        CHECK(waitpid(-1, 0, 12345678) == -1 && errno == EINVAL);
        CHECK(waitid(P_ALL, 0, &info, 0) == -1 && errno == EINVAL);
        return 0;
    }
    if (!strcmp(how, "stopped")) {
        pid = held_child(SIGSTOP);
        CHECK(waitpid(pid, &status, WUNTRACED) == pid && WIFSTOPPED(status));
        kill(pid, SIGCONT);
        CHECK(!waitid(P_PID, pid, &info, WCONTINUED) && info.si_code == CLD_CONTINUED);
        close(hold[1]);
        CHECK(waitpid(pid, &status, 0) == pid);
    }
    if (!strcmp(how, "traced")) {
        if (!(pid = fork())) { ptrace(PTRACE_TRACEME, 0, 0, 0); raise(SIGSTOP); _exit(21); }
        CHECK(waitpid(pid, &status, 0) == pid && WIFSTOPPED(status));
        CHECK(!ptrace(PTRACE_CONT, pid, 0, 0));
        CHECK(waitpid(pid, &status, 0) == pid);
    }
    if (!strcmp(how, "killed") || !strcmp(how, "killed-waitid")) {
        if (!(pid = fork())) raise(SIGKILL);
        if (strchr(how, '-')) { CHECK(!waitid(P_PID, pid, &info, WEXITED)); CHECK(info.si_code == CLD_KILLED); }
        else CHECK(waitpid(pid, &status, 0) == pid && WTERMSIG(status) == SIGKILL);
        return 0;
    }
    if (!strcmp(how, "burn")) {
        if (!(pid = fork())) {
            clock_t end = clock() + CLOCKS_PER_SEC / 4;
            while (clock() < end) {}
            kill(getpid(), SIGKILL);
        }
        CHECK(!waitid(P_PID, pid, &info, WEXITED));
        return 0;
    }
    if (!strcmp(how, "cancel")) { cancel(); return 0; }
    if (!strcmp(how, "cancel-waitid")) { with_waitid = 1; cancel(); return 0; }
    if (!strcmp(how, "race") || !strcmp(how, "race-waitid")) {
        enum { N = 200 };
        int count = 0;
        pthread_t threads[4];
        with_waitid = strchr(how, '-') != 0;
        for (int i = 0; i < N; i++) child(0);
        for (int i = 0; i < 4; i++) CHECK(!pthread_create(&threads[i], 0, reap_many, &count));
        for (int i = 0; i < 4; i++) pthread_join(threads[i], 0);
        CHECK(count == N);
        return 0;
    }
    CHECK(errno == 0);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 21);
    return 0;
}
