/* A library for LD_PRELOAD: the program's CLOCK_REALTIME is 3.7 s ahead of the kernel's, as on a node whose clock is wrong.
 * Programs read that clock by the vDSO, some of them past libc. So the function of the vDSO itself is replaced, in this process
 * alone: its page is copied when it is written to. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define AHEAD_NS 3700000000LL

/* As the function of the vDSO: a negative error number. */
static int ahead(clockid_t clock, struct timespec *time) {
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "0"((long)SYS_clock_gettime), "D"((long)clock), "S"(time) : "rcx", "r11", "memory");
    if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        long long ns = time->tv_sec * 1000000000LL + time->tv_nsec + AHEAD_NS;
        time->tv_sec = ns / 1000000000;
        time->tv_nsec = ns % 1000000000;
    }
    return (int)result;
}

__attribute__((constructor)) static void replace(void) {
    void *vdso = dlopen("linux-vdso.so.1", RTLD_LAZY | RTLD_NOLOAD);
    unsigned char *function = vdso ? dlsym(vdso, "__vdso_clock_gettime") : NULL;
    if (!function) {
        fputs("clock_ahead: no vDSO\n", stderr);
        _exit(99);
    }
    /* movabs rax, ADDRESS; jmp rax */
    unsigned char jump[12] = {0x48, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xe0};
    void *target = (void *)ahead;
    memcpy(jump + 2, &target, sizeof target);
    uintptr_t size = (uintptr_t)sysconf(_SC_PAGESIZE), page = (uintptr_t)function & ~(size - 1);
    if (mprotect((void *)page, 2 * size, PROT_READ | PROT_WRITE | PROT_EXEC)) {
        perror("clock_ahead: mprotect");
        _exit(99);
    }
    memcpy(function, jump, sizeof jump);
    mprotect((void *)page, 2 * size, PROT_READ | PROT_EXEC);
}
