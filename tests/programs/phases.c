/* phases --truth FILE|FD [--pool N] [--server PORT] [--lock FILE] [--fifo FILE] [--cold FILE] [--slow FILE] PHASE...
 *
 * Spends its time in one state after another, and writes as JSON how long it was in which. With --pool, N threads wait
 * on a condition variable all the time. A PHASE is KIND:SECONDS:
 *
 * compute, compute2     computes; two threads at once, each for SECONDS of CPU time
 * alternate             two threads compute in turns of 7 ms
 * innerpipe             reads a byte from a child that computes
 * duty:S:MS:PERCENT     computes for PERCENT of each period of MS milliseconds, sleeps for the rest
 * sleep, child          sleeps; waits for a child that sleeps
 * lock                  waits for a mutex whose holder sleeps
 * flock, fcntl          waits for a lock of --lock FILE, which the server has: of flock(2), of F_SETLKW
 * pipe                  reads --fifo FILE, to which the server writes late
 * network               recv() from the server, which answers late
 * poll, epoll, select   wait for that answer by these functions
 * stop                  stops itself; the server continues it
 * fsync                 computes, and writes blocks with O_DSYNC to a file of the current directory
 * coldfile              page faults of --cold FILE, each page dropped from the cache first
 * slowread              reads --slow FILE, which has to be slow by itself
 *
 * The server of --server is another process, on 127.0.0.1. A connection brings it one line. `late SECONDS`: it sends a
 * byte after so long. `flock`, `fcntl`, `pipe` SECONDS, `stop SECONDS PID`: it sends a byte when it has the lock, has
 * opened the FIFO, or watches the process. It ends that after SECONDS.
 *
 * Times are of CLOCK_MONOTONIC. `computing_s`: some thread had a core (CPU time; of compute2, the union of what its
 * threads saw on the clock). `waiting_s`: none had one, and one was ready. `state_s`: in the phase's own state.
 * `cpu_s`: of all threads. `queued_s`: waiting time by schedstat, of all threads; null where the kernel lacks it. */
#include "common.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/stat.h>

#define MAX_PHASES 64
#define BLOCK 4096
/* The clock of a thread that computes jumps by so much only if it lost its core. */
#define JUMP_S 200e-6
#define TURN_S 0.007

struct use {
    double cpu_s, queued_s;
};

struct phase {
    const char *kind, *state;
    double seconds, period_ms, percent;
    double begin_s, end_s;
    /* What its threads and children used. */
    struct use use;
    /* Below 0: it is the CPU time. */
    double computing_s;
    /* Within pwrite; below 0: there was none. */
    double inside_s;
};

static const char *lock_path, *fifo_path, *cold_path, *slow_path;
static int server_port;
static int has_schedstat = 1;

static double now_s(void) {
    struct timespec t;
    if (clock_gettime(CLOCK_MONOTONIC, &t)) die("clock_gettime");
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* What the calling thread used since its start. */
static struct use thread_use(void) {
    struct use use = {thread_cpu_s(), 0};
    unsigned long long ran_ns, queued_ns;
    FILE *file = fopen("/proc/thread-self/schedstat", "re");
    if (file && fscanf(file, "%llu %llu", &ran_ns, &queued_ns) == 2) {
        use.queued_s = (double)queued_ns / 1e9;
    } else {
        has_schedstat = 0;
    }
    if (file) fclose(file);
    return use;
}

static struct use plus(struct use a, struct use b) {
    return (struct use){a.cpu_s + b.cpu_s, a.queued_s + b.queued_s};
}

static struct use minus(struct use a, struct use b) {
    return (struct use){a.cpu_s - b.cpu_s, a.queued_s - b.queued_s};
}

/* Two threads at once. */

struct span {
    double begin_s, end_s;
};

struct computer {
    double seconds;
    /* When it had a core. */
    struct span *spans;
    size_t count;
    struct use use;
};

#define MAX_SPANS ((size_t)1 << 16)

static void *compute_with_spans(void *argument) {
    struct computer *own = argument;
    struct use before = thread_use();
    double end_cpu_s = thread_cpu_s() + own->seconds, last_s = now_s();
    volatile unsigned long work = 0;
    own->spans[0] = (struct span){last_s, last_s};
    own->count = 1;
    while (thread_cpu_s() < end_cpu_s) {
        for (int i = 0; i < 5000; i++) work += (unsigned long)i;
        double s = now_s();
        if (s - last_s > JUMP_S) {
            if (own->count == MAX_SPANS) die("too many spans");
            own->spans[own->count++].begin_s = s;
        }
        own->spans[own->count - 1].end_s = last_s = s;
    }
    own->use = minus(thread_use(), before);
    return NULL;
}

/* How long at least one of the two had a core. */
static double union_s(const struct computer *a, const struct computer *b) {
    double sum_s = 0, until_s = 0;
    for (size_t i = 0, j = 0; i < a->count || j < b->count;) {
        int first = j == b->count || (i < a->count && a->spans[i].begin_s <= b->spans[j].begin_s);
        struct span span = first ? a->spans[i++] : b->spans[j++];
        double from_s = span.begin_s > until_s ? span.begin_s : until_s;
        if (span.end_s > from_s) {
            sum_s += span.end_s - from_s;
            until_s = span.end_s;
        }
    }
    return sum_s;
}

static void compute2(struct phase *phase) {
    static struct span spans[2][MAX_SPANS];
    struct computer own = {.seconds = phase->seconds, .spans = spans[0]};
    struct computer other = {.seconds = phase->seconds, .spans = spans[1]};
    pthread_t thread;
    if (pthread_create(&thread, NULL, compute_with_spans, &other)) die("pthread_create");
    compute_with_spans(&own);
    if (pthread_join(thread, NULL)) die("pthread_join");
    phase->use = plus(phase->use, other.use);
    phase->computing_s = union_s(&own, &other);
}

/* Two threads in turns. */

struct turns {
    double seconds;
    sem_t own, other;
    struct use use;
};

static void take(sem_t *semaphore) {
    while (sem_wait(semaphore)) {
        if (errno != EINTR) die("sem_wait");
    }
}

static void *other_turns(void *argument) {
    struct turns *turns = argument;
    for (double done_s = 0; done_s < turns->seconds; done_s += 2 * TURN_S) {
        take(&turns->other);
        burn_cpu(TURN_S);
        sem_post(&turns->own);
    }
    turns->use = thread_use();
    return NULL;
}

static void alternate(struct phase *phase) {
    struct turns turns = {.seconds = phase->seconds};
    pthread_t thread;
    if (sem_init(&turns.own, 0, 0) || sem_init(&turns.other, 0, 0)) die("sem_init");
    if (pthread_create(&thread, NULL, other_turns, &turns)) die("pthread_create");
    for (double done_s = 0; done_s < turns.seconds; done_s += 2 * TURN_S) {
        burn_cpu(TURN_S);
        sem_post(&turns.other);
        take(&turns.own);
    }
    if (pthread_join(thread, NULL)) die("pthread_join");
    phase->use = plus(phase->use, turns.use);
}

/* Children. */

static void innerpipe(struct phase *phase) {
    int ends[2];
    struct use use;
    if (pipe(ends)) die("pipe");
    pid_t child = fork();
    if (child < 0) die("fork");
    if (!child) {
        burn_cpu(phase->seconds);
        use = thread_use();
        if (write(ends[1], &use, sizeof use) != sizeof use) die("write");
        _exit(0);
    }
    close(ends[1]);
    if (read(ends[0], &use, sizeof use) != sizeof use) die("read");
    close(ends[0]);
    reap(child);
    phase->use = plus(phase->use, use);
}

static void sleeping_child(double seconds) {
    pid_t child = fork();
    if (child < 0) die("fork");
    if (!child) {
        hold_us((long)(seconds * 1e6));
        _exit(0);
    }
    reap(child);
}

/* A lock within the program. */

struct holder {
    pthread_mutex_t mutex;
    sem_t held;
    double seconds;
};

static void *hold_mutex(void *argument) {
    struct holder *holder = argument;
    if (pthread_mutex_lock(&holder->mutex)) die("pthread_mutex_lock");
    sem_post(&holder->held);
    hold_us((long)(holder->seconds * 1e6));
    pthread_mutex_unlock(&holder->mutex);
    return NULL;
}

static void lock(double seconds) {
    struct holder holder = {.mutex = PTHREAD_MUTEX_INITIALIZER, .seconds = seconds};
    pthread_t thread;
    if (sem_init(&holder.held, 0, 0)) die("sem_init");
    if (pthread_create(&thread, NULL, hold_mutex, &holder)) die("pthread_create");
    take(&holder.held);
    if (pthread_mutex_lock(&holder.mutex)) die("pthread_mutex_lock");
    pthread_mutex_unlock(&holder.mutex);
    if (pthread_join(thread, NULL)) die("pthread_join");
}

/* The server. */

/* Sends it a line. */
static int ask(const char *what, double seconds) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((unsigned short)server_port)};
    char line[64];
    int bytes = snprintf(line, sizeof line, "%s %.6f %d\n", what, seconds, getpid());
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address)) die("connect");
    if (send(fd, line, (size_t)bytes, 0) != bytes) die("send");
    return fd;
}

static void answered(int fd) {
    char byte;
    if (recv(fd, &byte, 1, 0) != 1) die("recv");
    close(fd);
}

static void wait_for_file_lock(const char *kind, double seconds) {
    int fd = open(lock_path, O_RDWR | O_CLOEXEC);
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    if (fd < 0) die(lock_path);
    answered(ask(kind, seconds));
    if (!strcmp(kind, "flock") ? flock(fd, LOCK_EX) : fcntl(fd, F_SETLKW, &whole)) die(kind);
    close(fd);
}

static void read_fifo(double seconds) {
    char byte;
    /* A FIFO opened for reading alone has no end for writing within this program. */
    int fd = open(fifo_path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 || fcntl(fd, F_SETFL, 0)) die(fifo_path);
    answered(ask("pipe", seconds));
    if (read(fd, &byte, 1) != 1) die("read");
    close(fd);
}

static void wait_for_event(const char *kind, double seconds) {
    int fd = ask("late", seconds), ready;
    if (!strcmp(kind, "poll")) {
        struct pollfd wanted = {.fd = fd, .events = POLLIN};
        ready = poll(&wanted, 1, -1);
    } else if (!strcmp(kind, "select")) {
        fd_set wanted;
        FD_ZERO(&wanted);
        FD_SET(fd, &wanted);
        ready = select(fd + 1, &wanted, NULL, NULL, NULL);
    } else {
        struct epoll_event event = {.events = EPOLLIN};
        int epoll = epoll_create1(EPOLL_CLOEXEC);
        if (epoll < 0 || epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event)) die("epoll_ctl");
        ready = epoll_wait(epoll, &event, 1, -1);
        close(epoll);
    }
    if (ready != 1) die(kind);
    answered(fd);
}

/* Files. */

static void write_blocks(struct phase *phase) {
    static char block[BLOCK];
    char name[64];
    snprintf(name, sizeof name, "phases.%d.data", getpid());
    int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC | O_DSYNC | O_CLOEXEC, 0600);
    if (fd < 0) die(name);
    double end_s = phase->begin_s + phase->seconds;
    phase->inside_s = 0;
    for (int i = 0; now_s() < end_s; i = (i + 1) % 64) {
        burn_cpu(0.0003);
        memset(block, i, sizeof block);
        double before_s = now_s();
        if (pwrite(fd, block, sizeof block, (off_t)i * BLOCK) != BLOCK) die("pwrite");
        phase->inside_s += now_s() - before_s;
    }
    close(fd);
    unlink(name);
}

static void fault_cold_pages(double end_s) {
    struct stat status;
    int fd = open(cold_path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &status) || status.st_size < BLOCK) die(cold_path);
    size_t page_bytes = (size_t)sysconf(_SC_PAGESIZE), pages = (size_t)status.st_size / page_bytes;
    const char *memory = mmap(NULL, pages * page_bytes, PROT_READ, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED || madvise((void *)memory, pages * page_bytes, MADV_RANDOM)) die("mmap");
    /* Pages that were written together are dropped only together. */
    if (posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED)) die("posix_fadvise");
    volatile char sum = 0;
    for (size_t page = 0; now_s() < end_s; page = (page + 7919) % pages) {
        size_t at = page * page_bytes;
        /* The cache keeps pages that are mapped. */
        if (madvise((void *)(memory + at), page_bytes, MADV_DONTNEED)) die("madvise");
        if (posix_fadvise(fd, (off_t)at, (off_t)page_bytes, POSIX_FADV_DONTNEED)) die("posix_fadvise");
        sum = (char)(sum + memory[at]);
    }
    munmap((void *)memory, pages * page_bytes);
    close(fd);
}

static void read_slow_file(double end_s) {
    char block[BLOCK];
    int fd = open(slow_path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) die(slow_path);
    while (now_s() < end_s) {
        if (pread(fd, block, sizeof block, 0) < 1) die("pread");
    }
    close(fd);
}

static void duty(const struct phase *phase) {
    double period_s = phase->period_ms / 1000;
    for (double next_s = phase->begin_s + period_s; next_s < phase->begin_s + phase->seconds; next_s += period_s) {
        struct timespec next = {(time_t)next_s, (long)((next_s - (double)(time_t)next_s) * 1e9)};
        burn_cpu(period_s * phase->percent / 100);
        while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &next, NULL) == EINTR) {}
    }
}

static void *idle(void *argument) {
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    static pthread_cond_t never = PTHREAD_COND_INITIALIZER;
    sem_post(argument);
    pthread_mutex_lock(&mutex);
    for (;;) pthread_cond_wait(&never, &mutex);
    return NULL;
}

static void start_pool(int threads) {
    static sem_t started;
    if (sem_init(&started, 0, 0)) die("sem_init");
    for (int i = 0; i < threads; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, idle, &started)) die("pthread_create");
    }
    for (int i = 0; i < threads; i++) take(&started);
}

static const struct {
    const char *kind, *state;
    /* The option that it needs. */
    const char *option;
} kinds[] = {
    {"compute", "computing", ""},        {"compute2", "computing", ""},        {"alternate", "computing", ""},
    {"innerpipe", "computing", ""},      {"duty", "sleeping", ""},             {"sleep", "sleeping", ""},
    {"child", "sleeping", ""},           {"lock", "lock", ""},                 {"flock", "file_lock", "--lock"},
    {"fcntl", "file_lock", "--lock"},    {"pipe", "pipe", "--fifo"},           {"network", "network", "--server"},
    {"poll", "events", "--server"},      {"epoll", "events", "--server"},      {"select", "events", "--server"},
    {"stop", "stopped", "--server"},     {"fsync", "storage", ""},             {"coldfile", "storage", "--cold"},
    {"slowread", "storage", "--slow"},
};

static int is_given(const char *option) {
    if (!strcmp(option, "--lock")) return lock_path && server_port;
    if (!strcmp(option, "--fifo")) return fifo_path && server_port;
    if (!strcmp(option, "--cold")) return cold_path != NULL;
    if (!strcmp(option, "--slow")) return slow_path != NULL;
    return !*option || server_port;
}

/* Whether the phase can be done. */
static int parse(char *word, struct phase *phase) {
    char *colon = strchr(word, ':');
    if (!colon) return 0;
    *colon = 0;
    int numbers = sscanf(colon + 1, "%lf:%lf:%lf", &phase->seconds, &phase->period_ms, &phase->percent);
    phase->kind = word;
    if (numbers != (strcmp(word, "duty") ? 1 : 3)) return 0;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (strcmp(word, kinds[i].kind)) continue;
        phase->state = kinds[i].state;
        return is_given(kinds[i].option);
    }
    return 0;
}

static void spend(struct phase *phase) {
    const char *kind = phase->kind;
    double seconds = phase->seconds;
    if (!strcmp(kind, "compute")) burn_cpu(seconds);
    if (!strcmp(kind, "compute2")) compute2(phase);
    if (!strcmp(kind, "alternate")) alternate(phase);
    if (!strcmp(kind, "innerpipe")) innerpipe(phase);
    if (!strcmp(kind, "duty")) duty(phase);
    if (!strcmp(kind, "sleep")) hold_us((long)(seconds * 1e6));
    if (!strcmp(kind, "child")) sleeping_child(seconds);
    if (!strcmp(kind, "lock")) lock(seconds);
    if (!strcmp(phase->state, "file_lock")) wait_for_file_lock(kind, seconds);
    if (!strcmp(kind, "pipe")) read_fifo(seconds);
    if (!strcmp(kind, "network")) answered(ask("late", seconds));
    if (!strcmp(phase->state, "events")) wait_for_event(kind, seconds);
    if (!strcmp(kind, "stop")) {
        answered(ask("stop", seconds));
        raise(SIGSTOP);
    }
    if (!strcmp(kind, "fsync")) write_blocks(phase);
    if (!strcmp(kind, "coldfile")) fault_cold_pages(phase->begin_s + seconds);
    if (!strcmp(kind, "slowread")) read_slow_file(phase->begin_s + seconds);
}

static void measure(struct phase *phase) {
    struct use before = thread_use();
    phase->computing_s = phase->inside_s = -1;
    spend(phase);
    phase->use = plus(phase->use, minus(thread_use(), before));
    phase->end_s = now_s();
    if (phase->computing_s < 0) phase->computing_s = phase->use.cpu_s;
}

static void print(FILE *out, const struct phase *phase) {
    double wall_s = phase->end_s - phase->begin_s;
    double left_s = wall_s > phase->computing_s ? wall_s - phase->computing_s : 0;
    /* A phase that computes does not block, so it is ready for the rest. */
    int computes = !strcmp(phase->state, "computing");
    double waiting_s = computes || phase->use.queued_s > left_s ? left_s : phase->use.queued_s;
    fprintf(out, "{\"kind\": \"%s\", \"state\": \"%s\", ", phase->kind, phase->state);
    fprintf(out, "\"begin_s\": %.6f, \"end_s\": %.6f, ", phase->begin_s, phase->end_s);
    fprintf(out, "\"computing_s\": %.6f, \"waiting_s\": %.6f, \"state_s\": %.6f, \"cpu_s\": %.6f, ", phase->computing_s,
            waiting_s, computes ? phase->computing_s : left_s - waiting_s, phase->use.cpu_s);
    fprintf(out, has_schedstat ? "\"queued_s\": %.6f" : "\"queued_s\": null", phase->use.queued_s);
    if (phase->inside_s >= 0) fprintf(out, ", \"inside_s\": %.6f", phase->inside_s);
    fprintf(out, "}");
}

int main(int argc, char **argv) {
    static struct phase phases[MAX_PHASES];
    const char *truth = NULL;
    int count = 0, i = 1;
    if (argc < 4 || strcmp(argv[1], "--truth")) return 97;
    for (; i + 1 < argc && argv[i][0] == '-'; i += 2) {
        if (!strcmp(argv[i], "--truth")) truth = argv[i + 1];
        else if (!strcmp(argv[i], "--pool")) start_pool(atoi(argv[i + 1]));
        else if (!strcmp(argv[i], "--server")) server_port = atoi(argv[i + 1]);
        else if (!strcmp(argv[i], "--lock")) lock_path = argv[i + 1];
        else if (!strcmp(argv[i], "--fifo")) fifo_path = argv[i + 1];
        else if (!strcmp(argv[i], "--cold")) cold_path = argv[i + 1];
        else if (!strcmp(argv[i], "--slow")) slow_path = argv[i + 1];
        else return 97;
    }
    for (; i < argc; i++) {
        if (count == MAX_PHASES || !parse(argv[i], &phases[count++])) return 97;
    }
    for (int j = 0; j < count; j++) {
        phases[j].begin_s = j ? phases[j - 1].end_s : now_s();
        measure(&phases[j]);
    }
    char *end;
    int fd = (int)strtol(truth, &end, 10);
    FILE *out = *end ? fopen(truth, "we") : fdopen(fd, "w");
    if (!out) die(truth);
    fprintf(out, "{\"pid\": %d, \"phases\": [", getpid());
    for (int j = 0; j < count; j++) {
        if (j) fprintf(out, ",\n  ");
        print(out, &phases[j]);
    }
    fprintf(out, "]}\n");
    if (fclose(out)) die(truth);
    return 0;
}
