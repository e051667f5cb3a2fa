/* twig SCRIPT
 *
 * Creates the process tree that SCRIPT describes, one letter after another, and exits with status 0 at its end. The
 * script of a child is in {}.
 *
 *   c N      compute for N ms of CPU                  m N      hold N MB more
 *   f{...}   fork                                     F{...}   fork by a raw clone system call
 *   p{...}   posix_spawn this program                 P{...}   the same, the static variant ($TWIG_STATIC)
 *   d{...}   fork twice; the middle process exits at once and is reaped, so the child becomes an orphan
 *   e{...}   exec this program in this process        E{...}   the same, the static variant
 *   w        wait for the oldest child                W        the same, by a raw wait4
 *   a        wait for all children                    k        kill the youngest child
 *   i        ignore SIGCHLD                           t        a thread that computes for 5 ms, joined
 *   s N      raise signal N                           x N, X N, Y N   exit, _exit, raw exit_group with status N
 *
 * An exec discards the peak RSS, so before it a line is added to the file $TWIG_PEAKS. The line has the pid, the peak
 * in KiB, the peak at the fork in KiB (0 in an image of its own), and "raw" after a raw clone.
 */
#include "common.h"
#include <pthread.h>
#include <spawn.h>

static const char *self;
static pid_t children[256];
static int oldest, child_count;

static long at_fork_kib;
static int is_raw;

static void run(const char *script);

/* Peak RSS of this image, KiB; 0 without $TWIG_PEAKS. */
static long peak_kib(void) {
    char text[4096];
    if (!getenv("TWIG_PEAKS")) return 0;
    /* Before Linux 6.2 an munmap makes the kernel count the last page faults. */
    void *page = map_touched(4096, MAP_PRIVATE);
    munmap(page, 4096);
    int fd = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
    ssize_t n = read(fd, text, sizeof text - 1);
    if (n <= 0 || close(fd)) die("/proc/self/status");
    text[n] = 0;
    char *line = strstr(text, "\nVmHWM:");
    if (!line) die("VmHWM");
    return atol(line + 7);
}

static void write_peak(void) {
    const char *path = getenv("TWIG_PEAKS");
    if (!path) return;
    char text[64];
    int length = snprintf(text, sizeof text, "%d %ld %ld%s\n", (int)getpid(), peak_kib(), at_fork_kib, is_raw ? " raw" : "");
    int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    if (write(fd, text, (size_t)length) != length || close(fd)) die(path);
}

static long number(const char **script) {
    char *end;
    long n = strtol(*script, &end, 10);
    *script = end;
    return n;
}

/* The text between the braces; moves the script behind them. */
static char *block(const char **script) {
    const char *start = ++*script;
    for (int depth = 1; depth > 0; ++*script) {
        if (!**script) die("a brace is missing");
        depth += (**script == '{') - (**script == '}');
    }
    return strndup(start, (size_t)(*script - start - 1));
}

static void add(pid_t pid) {
    if (pid < 0 || child_count == 256) die("a child");
    children[child_count++] = pid;
}

static void reap_oldest(int raw) {
    if (oldest == child_count) return;
    pid_t pid = children[oldest++];
    int status;
    /* Fails with ECHILD if SIGCHLD is ignored. */
    if (raw) syscall(SYS_wait4, pid, &status, 0, NULL);
    else waitpid(pid, &status, 0);
}

static void child_of_fork(char *script) {
    oldest = child_count = 0;
    at_fork_kib = peak_kib();
    run(script);
    exit(0);
}

static pid_t forked(char *script, int raw) {
    pid_t pid = raw ? (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL) : fork();
    if (pid == 0) {
        is_raw = raw;
        child_of_fork(script);
    }
    return pid;
}

static const char *variant(int is_static) {
    const char *path = is_static ? getenv("TWIG_STATIC") : getenv("TWIG_DYNAMIC");
    return path ? path : self;
}

static pid_t spawned(char *script, int is_static) {
    pid_t pid;
    char *argv[] = {"twig", script, NULL};
    return posix_spawn(&pid, variant(is_static), NULL, NULL, argv, environ) ? -1 : pid;
}

static void *thread(void *unused) {
    burn_cpu(0.005);
    return unused;
}

static void orphan(char *script) {
    pid_t middle = fork();
    if (middle == 0) {
        pid_t pid = forked(script, 0);
        _exit(pid < 0);
    }
    add(middle);
    waitpid(middle, NULL, 0);
    child_count--;
}

static void run(const char *script) {
    while (*script) {
        char letter = *script++;
        pthread_t other;
        char *inner = *script == '{' ? block(&script) : NULL;
        char *argv[] = {"twig", inner, NULL};
        switch (letter) {
        case 'c': burn_cpu(number(&script) / 1000.0); break;
        case 'm': map_touched((size_t)number(&script) << 20, MAP_PRIVATE); break;
        case 'f': case 'F': add(forked(inner, letter == 'F')); break;
        case 'p': case 'P': add(spawned(inner, letter == 'P')); break;
        case 'd': orphan(inner); break;
        case 'e': case 'E': write_peak(); execv(variant(letter == 'E'), argv); die("exec"); break;
        case 'w': case 'W': reap_oldest(letter == 'W'); break;
        case 'a': while (oldest < child_count) reap_oldest(0); break;
        case 'k': if (oldest < child_count) kill(children[child_count - 1], SIGKILL); break;
        case 'i': signal(SIGCHLD, SIG_IGN); break;
        case 't':
            if (pthread_create(&other, NULL, thread, NULL) || pthread_join(other, NULL)) die("a thread");
            break;
        case 's': raise((int)number(&script)); break;
        case 'x': exit((int)number(&script));
        case 'X': _exit((int)number(&script));
        case 'Y': syscall(SYS_exit_group, (int)number(&script)); break;
        case ' ': break;
        default: die("a letter");
        }
        free(inner);
    }
}

int main(int argc, char **argv) {
    if (argc != 2) return 97;
    char path[4096] = "";
    if (readlink("/proc/self/exe", path, sizeof path - 1) < 0) die("readlink");
    self = path;
    run(argv[1]);
    return 0;
}
