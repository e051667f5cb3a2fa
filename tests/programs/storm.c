/* storm calm|brief|kill|step ROUNDS
 *
 * Has ROUNDS children and reaps them all.
 * calm: each execs true; a dot is written for each.
 * brief: each exits at once; a dot is written for each.
 * kill: some exec, some allocate and exit. At a random moment some are killed, and some are stopped and continued after
 *       other children have ended.
 * step: each calls _exit and is stopped after a random number of instructions, often inside of a preloaded library's
 *       code. Then it is killed, or continued after enough other children to fill any ring buffer once. Status 95 if
 *       ptrace is not permitted.
 * Prints how many children it had, and how many were killed or stopped half-way. */
#include "common.h"
#include <sys/ptrace.h>

static unsigned long state = 88172645463325252ul;

static unsigned long below(unsigned long end) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state % end;
}

static int made, half_way;

static pid_t begin(void (*run)(int)) {
    int kind = (int)below(3);
    pid_t child = fork();
    if (child < 0) die("fork");
    if (!child) run(kind);
    made++;
    return child;
}

static void exec_true(int kind) {
    (void)kind;
    execl("/bin/true", "true", (char *)NULL);
    die("execl");
}

static void exit_at_once(int kind) {
    (void)kind;
    _exit(0);
}

static void exec_or_allocate(int kind) {
    if (kind) exec_true(kind);
    for (int i = 1; i < 50; i++) free(malloc((size_t)i * 100));
    exit(0);
}

static void exit_traced(int kind) {
    (void)kind;
    if (ptrace(PTRACE_TRACEME, 0, 0, 0)) _exit(95);
    raise(SIGSTOP);
    _exit(0);
}

static void reap_any(pid_t child) {
    int status;
    if (waitpid(child, &status, 0) != child) die("waitpid");
}

/* Stopped children; they are continued in random order. */
static pid_t stopped[8];
static int stopped_count;

static void continue_one(void) {
    int which = (int)below((unsigned long)stopped_count);
    pid_t child = stopped[which];
    stopped[which] = stopped[--stopped_count];
    kill(child, SIGCONT);
    reap_any(child);
}

static void stop_later(pid_t child) {
    if (stopped_count == 8) continue_one();
    stopped[stopped_count++] = child;
}

static void kill_round(void) {
    pid_t child = begin(exec_or_allocate);
    /* A random delay of up to about a child's lifetime. */
    for (volatile unsigned long i = below(1ul << (5 + below(16))); i; i--) {}
    switch (below(4)) {
    case 0:
        kill(child, SIGKILL);
        half_way++;
        reap_any(child);
        break;
    case 1:
        kill(child, SIGSTOP);
        half_way++;
        stop_later(child);
        break;
    default:
        reap_any(child);
    }
}

static void step_round(int round) {
    pid_t child = begin(exit_traced);
    int status;
    if (waitpid(child, &status, 0) != child) die("waitpid");
    if (WIFEXITED(status)) _exit(95);
    for (unsigned long steps = below(6000); steps; steps--) {
        if (ptrace(PTRACE_SINGLESTEP, child, 0, 0)) die("singlestep");
        if (waitpid(child, &status, 0) != child) die("waitpid");
        if (!WIFSTOPPED(status)) return;
    }
    half_way++;
    if (below(2)) {
        kill(child, SIGKILL);
        reap_any(child);
        return;
    }
    if (ptrace(PTRACE_DETACH, child, 0, SIGSTOP)) die("detach");
    stop_later(child);
    if (round % 50 == 49)
        for (int i = 0; i < 800; i++) {
            pid_t other = begin(exec_true);
            reap_any(other);
        }
}

int main(int argc, char **argv) {
    if (argc != 3) return 97;
    int rounds = atoi(argv[2]);
    for (int round = 0; round < rounds; round++) {
        int is_brief = !strcmp(argv[1], "brief");
        if (is_brief || !strcmp(argv[1], "calm")) {
            reap_any(begin(is_brief ? exit_at_once : exec_true));
            if (write(1, ".", 1) != 1) die("write");
        } else if (!strcmp(argv[1], "kill")) {
            kill_round();
        } else {
            step_round(round);
        }
    }
    while (stopped_count) continue_one();
    printf("%d children, %d half-way\n", made, half_way);
    return 0;
}
