// A 32-bit program that needs no 32-bit library (gcc -m32 -nostdlib). It execs its arguments.
static long call(long number, long a, const void *b, long c) {
    long result;
    __asm__ volatile("int $0x80" : "=a"(result) : "0"(number), "b"(a), "c"(b), "d"(c) : "memory");
    return result;
}

enum { EXIT = 1, EXECVE = 11 };

__attribute__((used)) static void begin(long *stack) {
    char **argv = (char **)(stack + 1), **env = argv + stack[0] + 1;
    call(EXECVE, (long)argv[1], argv + 1, (long)env);
    call(EXIT, 127, 0, 0);
}

__asm__(".globl _start\n_start: mov %esp, %eax\nand $-16, %esp\nsub $12, %esp\npush %eax\ncall begin");
