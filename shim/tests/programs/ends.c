// The ways in which a process begins or ends: `ends CASE`.
#define _GNU_SOURCE
#include <pty.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void reap(pid_t pid) {
    int status;
    if (pid < 0 || waitpid(pid, &status, 0) != pid) exit(99);
}

static void *only_thread(void *_) { (void)_; exit(5); }

static char shared[64 << 20];

int main(int argc, char **argv) {
    memset(shared, 1, sizeof shared);
    const char *how = argc > 1 ? argv[1] : "";
    if (!strcmp(how, "return")) return 3;
    if (!strcmp(how, "exit")) exit(4);
    if (!strcmp(how, "_exit")) _exit(5);
    if (!strcmp(how, "_Exit")) _Exit(6);
    if (!strcmp(how, "quick_exit")) quick_exit(7);
    if (!strcmp(how, "abort")) abort();
    if (!strcmp(how, "kill")) kill(getpid(), SIGKILL);
    if (!strcmp(how, "thread")) {
        pthread_t thread;
        pthread_create(&thread, 0, only_thread, 0);
        pthread_exit(0);
    }
    if (!strcmp(how, "autoreap")) { signal(SIGCHLD, SIG_IGN); return 0; }
    if (!strcmp(how, "fork")) {
        pid_t pid = fork();
        if (!pid) exit(11);
        reap(pid);
    }
    if (!strcmp(how, "_Fork")) {
        pid_t pid = _Fork();
        if (!pid) _exit(12);
        reap(pid);
    }
    if (!strcmp(how, "vfork")) {
        pid_t pid = vfork();
        if (!pid) _exit(13);
        reap(pid);
    }
    if (!strcmp(how, "forkpty")) {
        int master;
        pid_t pid = forkpty(&master, 0, 0, 0);
        if (!pid) _exit(14);
        reap(pid);
    }
    if (!strcmp(how, "daemon")) {
        int ends[2];
        char byte;
        if (pipe(ends)) return 98;
        pid_t pid = fork();
        if (!pid) {
            if (daemon(1, 1)) _exit(97);
            exit(15);
        }
        close(ends[1]);
        reap(pid);
        // The daemon has the other end open until it ends.
        if (read(ends[0], &byte, 1) != 0) return 96;
    }
    if (!strcmp(how, "system")) return WEXITSTATUS(system("exit 16"));
    if (!strcmp(how, "popen")) return WEXITSTATUS(pclose(popen("exit 17", "r")));
    return 0;
}
