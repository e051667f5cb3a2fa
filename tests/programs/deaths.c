/* deaths HOW SECONDS
 *
 * A fork child burns SECONDS of CPU and ends in the given way. With status 7: return exit _exit _Exit quick_exit
 * exit_group. With status 0: pthread_exit. By a signal: abort, or a signal's number. */
#include "common.h"
#include <pthread.h>

/* Ends the child; returns if it shall return from main. */
static int end(const char *how) {
    if (!strcmp(how, "exit")) exit(7);
    if (!strcmp(how, "_exit")) _exit(7);
    if (!strcmp(how, "_Exit")) _Exit(7);
    if (!strcmp(how, "quick_exit")) quick_exit(7);
    if (!strcmp(how, "exit_group")) syscall(SYS_exit_group, 7);
    if (!strcmp(how, "pthread_exit")) pthread_exit(NULL);
    if (!strcmp(how, "abort")) abort();
    if (atoi(how)) raise(atoi(how));
    return 7;
}

int main(int argc, char **argv) {
    if (argc != 3) return 97;
    pid_t child = fork();
    if (child < 0) die("fork");
    if (!child) {
        burn_cpu(atof(argv[2]));
        return end(argv[1]);
    }
    int status;
    if (waitpid(child, &status, 0) != child) die("waitpid");
    int signal = !strcmp(argv[1], "abort") ? SIGABRT : atoi(argv[1]);
    int code = !strcmp(argv[1], "pthread_exit") ? 0 : 7;
    if (signal) return WIFSIGNALED(status) && WTERMSIG(status) == signal ? 0 : 98;
    return WIFEXITED(status) && WEXITSTATUS(status) == code ? 0 : 98;
}
