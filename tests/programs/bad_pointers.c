/* bad_pointers
 *
 * Calls the exec and spawn functions with arguments and environments that lead where no program has memory. Prints the error of each
 * call and the status of the process that made it. */
#include "common.h"
#include <spawn.h>
#include <stdint.h>

extern char **environ;

static void in_a_child(const char *what, char **argv, char **envp) {
    pid_t child = fork();
    if (child < 0) die("fork");
    if (!child) {
        const char *name = "true", *path = "/bin/true";
        execve(path, argv, envp);
        printf("%s: execve: %s\n", what, strerror(errno));
        execvpe(name, argv, envp);
        printf("%s: execvpe: %s\n", what, strerror(errno));
        environ = envp;
        execv(path, argv);
        printf("%s: execv: %s\n", what, strerror(errno));
        pid_t spawned;
        printf("%s: posix_spawn: %s\n", what, strerror(posix_spawn(&spawned, path, NULL, NULL, argv, envp)));
        fflush(stdout);
        _exit(7);
    }
    int status;
    if (waitpid(child, &status, 0) != child) die("waitpid");
    printf("%s: status %x\n", what, status);
    fflush(stdout);
}

int main(void) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    static char *good[] = {"true", NULL};
    /* Below all memory, beyond that of programs, the kernel's, and no address at all. */
    uintptr_t all[] = {8, (uintptr_t)1 << 55, ~(uintptr_t)0 << 47, ~(uintptr_t)0};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        char *nowhere = (char *)all[i];
        in_a_child("no arguments", (char **)nowhere, good);
        in_a_child("an argument nowhere", (char *[]){"true", nowhere, NULL}, good);
        in_a_child("a name nowhere", (char *[]){nowhere, NULL}, good);
        in_a_child("a client with an argument nowhere", (char *[]){"docker", "run", nowhere, NULL}, good);
        in_a_child("no variables", good, (char **)nowhere);
        in_a_child("a variable nowhere", good, (char *[]){"A=1", nowhere, NULL});
    }
    in_a_child("nothing wrong", good, environ);
    return 0;
}
