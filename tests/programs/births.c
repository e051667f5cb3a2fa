/* births HOW SECONDS
 *
 * Creates one child in the given way, which burns SECONDS of CPU, and reaps it. Ways:
 * fork _Fork clone raw_fork forkpty daemon   the child is this program
 * vfork posix_spawn posix_spawnp             the child execs this program again as `births burn SECONDS`
 * posix_spawn_fails                          the child's exec fails
 * system popen                               the child is a shell that execs it */
#include "common.h"
#include <pty.h>
#include <sched.h>
#include <spawn.h>

extern char **environ;
static const char *self, *seconds;

static void child_burns(void) {
    burn_cpu(atof(seconds));
    exit(0);
}

static int clone_child(void *unused) {
    (void)unused;
    burn_cpu(atof(seconds));
    return 0;
}

/* The daemon's parent exits inside daemon(3). The daemon holds a pipe, whose EOF shows that it has ended. */
static void by_daemon(void) {
    int alive[2];
    if (pipe(alive)) die("pipe");
    pid_t child = fork();
    if (child < 0) die("fork");
    if (!child) {
        close(alive[0]);
        if (daemon(1, 1)) die("daemon");
        child_burns();
    }
    close(alive[1]);
    reap(child);
    char byte;
    if (read(alive[0], &byte, 1) != 0) die("read");
}

static void by_shell(int with_popen) {
    char line[4096];
    snprintf(line, sizeof line, "exec '%s' burn %s", self, seconds);
    if (!with_popen) {
        if (system(line)) die("system");
        return;
    }
    FILE *stream = popen(line, "r");
    if (!stream || pclose(stream)) die("popen");
}

int main(int argc, char **argv) {
    if (argc != 3) return 97;
    const char *how = argv[1];
    self = argv[0];
    seconds = argv[2];
    char *again[] = {argv[0], "burn", argv[2], NULL};
    pid_t child = -1;
    if (!strcmp(how, "burn")) {
        child_burns();
    } else if (!strcmp(how, "fork")) {
        if (!(child = fork())) child_burns();
    } else if (!strcmp(how, "_Fork")) {
        if (!(child = _Fork())) child_burns();
    } else if (!strcmp(how, "raw_fork")) {
        if (!(child = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0))) child_burns();
    } else if (!strcmp(how, "clone")) {
        char *stack = map_touched(1 << 16, MAP_PRIVATE);
        child = clone(clone_child, stack + (1 << 16), SIGCHLD, NULL);
    } else if (!strcmp(how, "forkpty")) {
        int terminal;
        if (!(child = forkpty(&terminal, NULL, NULL, NULL))) child_burns();
    } else if (!strcmp(how, "vfork")) {
        if (!(child = vfork())) {
            execv(self, again);
            _exit(99);
        }
    } else if (!strcmp(how, "posix_spawn")) {
        if (posix_spawn(&child, self, NULL, NULL, again, environ)) die("posix_spawn");
    } else if (!strcmp(how, "posix_spawnp")) {
        if (posix_spawnp(&child, self, NULL, NULL, again, environ)) die("posix_spawnp");
    } else if (!strcmp(how, "posix_spawn_fails")) {
        return posix_spawn(&child, "/nonexistent", NULL, NULL, again, environ) == ENOENT ? 0 : 98;
    } else if (!strcmp(how, "daemon")) {
        by_daemon();
        return 0;
    } else if (!strcmp(how, "system") || !strcmp(how, "popen")) {
        by_shell(how[0] == 'p');
        return 0;
    } else {
        return 97;
    }
    if (child < 0) die(how);
    reap(child);
    return 0;
}
