/* pages MODE MIB CHILDREN [FILE]
 *
 * A tree that holds its memory until its standard input ends. The first process writes "ready" when all have it.
 *
 * fork          the parent's memory, which fork children share
 * cow           the same; each child writes the first half of it
 * generations   the parent's memory, which fork children share; the parent writes the first half of it when half of them
 *               are there, so that older children share other pages than younger ones
 * anonymous     a shared anonymous mapping of the parent, which the children alone touch
 * shm           FILE in /dev/shm, which each child opens for itself
 * memfd         child number I touches MIB (a multiple of 4) from I * MIB / 2 on
 * huge          shared hugetlb pages that the children touch; each child also has a quarter of it for itself
 * thp           transparent huge pages of the parent; each child writes one byte in every 2 MiB of the first half
 * file          a mapping of FILE that the parent and the children read
 * child_file    the same without the parent
 * file_write    a private mapping of FILE in each child, the first half of it written
 * slices        each child maps and reads its own part of FILE
 * parts         each child maps all of FILE and reads its own part of it
 * scattered     the same, but each child's pages lie between those of the others
 * twice         each child maps FILE twice, and an anonymous shared mapping of the parent twice, too
 * moved         memory that was moved and grown, and memory that may not be accessed any more
 * lazy          memory that the kernel may free (a quarter), or may swap (a half)
 * threads       the parent has threads; the first child is a clone with its parent's memory, the second one a vfork
 *               child, the third one a fork child that writes the first quarter, and so on
 * exec          each child executes this program and has MIB of its own
 *
 * Children touch and give back what they share with each other in step. So a child never has much of it alone, and what
 * they have at the end is the most that they ever had of each kind. */
#include "common.h"

#include <pthread.h>
#include <sched.h>
#include <spawn.h>

#define MAX_CHILDREN 64
#define HUGE_PAGE ((size_t)2 << 20)

static const char *mode, *file_name;
static size_t bytes;
static int children;
static char *memory, *again;
static pid_t pids[MAX_CHILDREN];
static int ready[2], release[2];
static pthread_barrier_t *barrier;

static int is(const char *name) { return !strcmp(mode, name); }

static void in_step(void) {
    if (children > 1) pthread_barrier_wait(barrier);
}

static void read_pages(const char *from, size_t length) {
    for (size_t i = 0; i < length; i += 4096) (void)*(volatile const char *)(from + i);
}

static char *map(size_t length, int flags, int fd, off_t offset) {
    char *at = mmap(NULL, length, PROT_READ | PROT_WRITE, flags, fd, offset);
    if (at == MAP_FAILED) die("mmap");
    return at;
}

static char *map_file(int flags, size_t length, off_t offset) {
    int fd = open(file_name, O_RDWR);
    if (fd < 0) die(file_name);
    char *at = map(length, flags, fd, offset);
    close(fd);
    return at;
}

/* Calls `touch` for a part of a range step by step, at the same time in all children. */
static void touch_part_in_step(char *from, size_t length, size_t begin, size_t end, void (*touch)(char *, size_t)) {
    size_t step = is("huge") ? HUGE_PAGE : HUGE_PAGE / 8;
    for (size_t at = 0; at < length; at += step) {
        if (at >= begin && at < end) touch(from + at, end - at < step ? end - at : step);
        in_step();
    }
}

static void touch_in_step(char *from, size_t length, void (*touch)(char *, size_t)) {
    touch_part_in_step(from, length, 0, length, touch);
}

static void write_range(char *from, size_t length) { touch_pages(from, length); }
static void read_range(char *from, size_t length) { read_pages(from, length); }
static void give_back(char *from, size_t length) { madvise(from, length, MADV_DONTNEED); }

static void wait_for_release(void) {
    char byte;
    if (read(release[0], &byte, 1) != 0) die("read");
}

static void say_ready(void) {
    char byte = 1;
    if (write(ready[1], &byte, 1) != 1) die("write");
}

static size_t memfd_bytes(void) { return bytes / 2 * (size_t)(children + 1); }

static void touch_window(int number, void (*touch)(char *, size_t)) {
    size_t begin = bytes / 2 * (size_t)number;
    touch_part_in_step(memory, memfd_bytes(), begin, begin + bytes, touch);
}

/* What the parent does before it has children. */
static void parent_before(void) {
    if (is("fork") || is("cow") || is("generations")) {
        memory = map_touched(bytes, MAP_PRIVATE);
    } else if (is("anonymous") || is("twice")) {
        memory = map(bytes, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    } else if (is("memfd")) {
        int fd = memfd_create("pages", 0);
        if (fd < 0 || ftruncate(fd, (off_t)memfd_bytes())) die("memfd");
        memory = map(memfd_bytes(), MAP_SHARED, fd, 0);
    } else if (is("huge")) {
        memory = map(bytes, MAP_SHARED | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
    } else if (is("thp")) {
        memory = map(bytes, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (madvise(memory, bytes, MADV_HUGEPAGE)) die("MADV_HUGEPAGE");
        touch_pages(memory, bytes);
    } else if (is("file") || is("child_file") || is("parts") || is("scattered")) {
        memory = map_file(MAP_SHARED, bytes, 0);
        if (is("file")) read_pages(memory, bytes);
    } else if (is("lazy") || is("threads")) {
        memory = map_touched(bytes, MAP_PRIVATE);
    }
}

static void move_memory(void) {
    char *small = map_touched(bytes / 2, MAP_PRIVATE);
    char *apart = map_touched(4096, MAP_PRIVATE);
    memory = mremap(small, bytes / 2, bytes, MREMAP_MAYMOVE);
    if (memory == MAP_FAILED) die("mremap");
    touch_pages(memory + bytes / 2, bytes / 2);
    munmap(apart, 4096);
    if (mprotect(memory, bytes / 4, PROT_NONE)) die("mprotect");
}

static void child(int number) {
    size_t part = bytes / (size_t)children;
    if (is("cow")) {
        write_range(memory, bytes / 2);
    } else if (is("anonymous") || is("huge")) {
        touch_in_step(memory, bytes, write_range);
        if (is("huge"))
            touch_pages(map(bytes / 4, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0), bytes / 4);
    } else if (is("shm")) {
        memory = map_file(MAP_SHARED, bytes, 0);
        touch_in_step(memory, bytes, write_range);
    } else if (is("memfd")) {
        touch_window(number, write_range);
    } else if (is("thp")) {
        for (size_t at = 0; at < bytes / 2; at += HUGE_PAGE) memory[at] = 2;
    } else if (is("file") || is("child_file")) {
        touch_in_step(memory, bytes, read_range);
    } else if (is("file_write")) {
        memory = map_file(MAP_PRIVATE, bytes, 0);
        write_range(memory, bytes / 2);
        touch_in_step(memory + bytes / 2, bytes / 2, read_range);
    } else if (is("slices")) {
        memory = map_file(MAP_SHARED, part, (off_t)(part * (size_t)number));
        read_range(memory, part);
    } else if (is("parts") || is("scattered")) {
        /* The kernel must not map the pages around those that are read. */
        madvise(memory, bytes, MADV_RANDOM);
        if (is("parts")) read_range(memory + part * (size_t)number, part);
        size_t page = 4096, step = page * (size_t)children;
        for (size_t at = page * (size_t)number; is("scattered") && at < bytes; at += step) read_range(memory + at, page);
    } else if (is("twice")) {
        again = mremap(memory, 0, bytes, MREMAP_MAYMOVE);
        if (again == MAP_FAILED) die("mremap");
        touch_in_step(memory, bytes, write_range);
        touch_in_step(again, bytes, write_range);
        char *file = map_file(MAP_SHARED, bytes, 0), *file_again = map_file(MAP_PRIVATE, bytes, 0);
        touch_in_step(file, bytes, read_range);
        touch_in_step(file_again, bytes, read_range);
    } else if (is("moved")) {
        move_memory();
    } else if (is("threads")) {
        write_range(memory, bytes / 4);
    }
}

/* Before the children end: what they share with each other must not be private to the last of them. */
static void child_after(int number) {
    if (is("anonymous") || is("huge") || is("shm") || is("child_file") || is("twice")) {
        touch_in_step(memory, bytes, give_back);
        if (again) touch_in_step(again, bytes, give_back);
    } else if (is("memfd")) {
        touch_window(number, give_back);
    }
}

static int child_main(int number) {
    close(release[1]);
    child(number);
    say_ready();
    wait_for_release();
    child_after(number);
    return 0;
}

/* A child with its parent's memory. */
static int sharing(void *unused) {
    (void)unused;
    say_ready();
    /* The child's descriptors are copies, so the pipe's write end is closed here alone. */
    close(release[1]);
    wait_for_release();
    _exit(0);
}

static void *parent_of_vfork(void *number) {
    pid_t pid = vfork();
    if (!pid) sharing(NULL);
    if (pid < 0) die("vfork");
    pids[(size_t)number] = pid;
    return NULL;
}

static void start_thread(void *(*run)(void *), size_t argument) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, run, (void *)argument)) die("pthread_create");
    pthread_detach(thread);
}

static void start_child(int number) {
    pid_t pid = 0;
    if (is("threads") && number % 3 == 1) {
        /* The thread that called vfork goes on when the child has ended. */
        start_thread(parent_of_vfork, (size_t)number);
        return;
    } else if (is("threads") && number % 3 == 0) {
        char *stack = malloc(1 << 16);
        pid = clone(sharing, stack + (1 << 16), CLONE_VM | SIGCHLD, NULL);
    } else if (is("exec")) {
        char length[32], ends[2][16];
        snprintf(length, sizeof length, "%zu", bytes >> 20);
        snprintf(ends[0], sizeof ends[0], "%d", ready[1]);
        snprintf(ends[1], sizeof ends[1], "%d", release[0]);
        char *words[] = {"pages", "executed", length, ends[0], ends[1], NULL};
        extern char **environ;
        fcntl(release[1], F_SETFD, FD_CLOEXEC);
        if (posix_spawn(&pid, "/proc/self/exe", NULL, NULL, words, environ)) die("posix_spawn");
    } else if (!(pid = fork())) {
        exit(child_main(number));
    }
    if (pid < 0) die("fork");
    pids[number] = pid;
}

static void parent_after(void) {
    if (is("lazy")) {
        madvise(memory, bytes / 4, MADV_FREE);
        /* Does nothing without swap. */
        madvise(memory + bytes / 2, bytes / 2, MADV_PAGEOUT);
    }
}

int main(int argc, char **argv) {
    if (argc < 4) return 97;
    mode = argv[1];
    bytes = strtoul(argv[2], NULL, 10) << 20;
    if (is("executed")) {
        ready[1] = atoi(argv[3]);
        release[0] = atoi(argv[4]);
        map_touched(bytes, MAP_PRIVATE);
        say_ready();
        wait_for_release();
        return 0;
    }
    children = atoi(argv[3]);
    file_name = argc > 4 ? argv[4] : "";
    if (children > MAX_CHILDREN || pipe(ready) || pipe(release)) die("pipe");
    barrier = (void *)map(4096, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pthread_barrierattr_t shared;
    pthread_barrierattr_init(&shared);
    pthread_barrierattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
    if (children > 1 && pthread_barrier_init(barrier, &shared, (unsigned)children)) die("barrier");
    parent_before();
    for (int i = 0; i < children; i++) {
        if (is("generations") && i == children / 2) write_range(memory, bytes / 2);
        start_child(i);
    }
    for (int i = 0; i < children; i++) {
        char byte;
        if (read(ready[0], &byte, 1) != 1) die("read");
    }
    parent_after();
    if (write(1, "ready\n", 6) != 6) die("stdout");
    for (char byte; read(0, &byte, 1) > 0;) {}
    close(release[1]);
    for (int i = 0; i < children; i++) {
        while (!*(volatile pid_t *)&pids[i]) hold_ms(1);
        reap(pids[i]);
    }
    return 0;
}
