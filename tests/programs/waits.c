/* waits HOW SECONDS
 *
 * A child burns SECONDS of CPU and kills itself with SIGKILL, so that only its reaper gets its CPU time. It is reaped by
 * the given function: wait wait3 wait3_null wait4 wait4_null waitpid waitid_pid waitid_all waitid_pidfd; `peek` first
 * calls waitid with WNOWAIT. The function's result must be as wait(2) documents it. */
#include "common.h"

#ifndef P_PIDFD
#define P_PIDFD 3
#endif

static double seconds_of(const struct rusage *usage) {
    return (double)(usage->ru_utime.tv_sec + usage->ru_stime.tv_sec) +
           (double)(usage->ru_utime.tv_usec + usage->ru_stime.tv_usec) / 1e6;
}

static int killed(pid_t got, pid_t child, const int *status) {
    return got == child && WIFSIGNALED(*status) && WTERMSIG(*status) == SIGKILL;
}

static int by_waitid(idtype_t type, id_t id, int options, pid_t child) {
    siginfo_t info;
    memset(&info, 0, sizeof info);
    if (waitid(type, id, &info, options)) die("waitid");
    return info.si_pid == child && info.si_code == CLD_KILLED && info.si_status == SIGKILL;
}

int main(int argc, char **argv) {
    if (argc != 3) return 97;
    const char *how = argv[1];
    double seconds = atof(argv[2]);
    pid_t child = fork();
    if (child < 0) die("fork");
    if (!child) {
        burn_cpu(seconds);
        raise(SIGKILL);
    }
    struct rusage usage;
    memset(&usage, 0, sizeof usage);
    int status = 0, good = 0, with_usage = 0;
    if (!strcmp(how, "wait")) {
        good = killed(wait(&status), child, &status);
    } else if (!strcmp(how, "wait3") || !strcmp(how, "wait3_null")) {
        with_usage = !strcmp(how, "wait3");
        good = killed(wait3(&status, 0, with_usage ? &usage : NULL), child, &status);
    } else if (!strcmp(how, "wait4") || !strcmp(how, "wait4_null")) {
        with_usage = !strcmp(how, "wait4");
        good = killed(wait4(child, &status, 0, with_usage ? &usage : NULL), child, &status);
    } else if (!strcmp(how, "waitpid")) {
        good = killed(waitpid(child, &status, 0), child, &status);
    } else if (!strcmp(how, "waitid_pid")) {
        good = by_waitid(P_PID, (id_t)child, WEXITED, child);
    } else if (!strcmp(how, "waitid_all")) {
        good = by_waitid(P_ALL, 0, WEXITED, child);
    } else if (!strcmp(how, "waitid_pidfd")) {
        int fd = (int)syscall(SYS_pidfd_open, child, 0);
        if (fd < 0) die("pidfd_open");
        good = by_waitid(P_PIDFD, (id_t)fd, WEXITED, child);
    } else if (!strcmp(how, "peek")) {
        good = by_waitid(P_PID, (id_t)child, WEXITED | WNOWAIT, child) &&
               by_waitid(P_PID, (id_t)child, WEXITED | WNOWAIT, child) &&
               killed(waitpid(child, &status, WNOHANG), child, &status);
    } else {
        return 97;
    }
    if (with_usage && (seconds_of(&usage) < seconds || seconds_of(&usage) > 2 * seconds)) return 96;
    if (waitpid(-1, &status, WNOHANG) != -1 || errno != ECHILD) return 95;
    return good ? 0 : 98;
}
