/* landlock exec|system|spawn|vfork [DIRECTORY...]
 *
 * Restricts itself to reading the system's directories, and to using all in the given ones. Then starts a shell that prints a line
 * and exits with status 4, in its place, by libc's system(), or by posix_spawn(). Status 77 if the kernel has no Landlock.
 *
 * vfork: a vfork child restricts itself, and execs the shell. Then the parent, which is not restricted, starts one by system(). */
#include "common.h"
#include <linux/landlock.h>
#include <spawn.h>
#include <sys/prctl.h>

#define READ (LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR)

static int rules;

static void allow(const char *directory, unsigned long long access) {
    struct landlock_path_beneath_attr path = {.allowed_access = access, .parent_fd = open(directory, O_PATH | O_CLOEXEC)};
    if (path.parent_fd < 0) return;
    if (syscall(SYS_landlock_add_rule, rules, LANDLOCK_RULE_PATH_BENEATH, &path, 0)) die(directory);
    close(path.parent_fd);
}

static void restrict_self(void) {
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || syscall(SYS_landlock_restrict_self, rules, 0)) die("restrict");
}

int main(int argc, char **argv) {
    struct landlock_ruleset_attr all = {.handled_access_fs = READ | LANDLOCK_ACCESS_FS_WRITE_FILE};
    char *words[] = {"sh", "-c", "/bin/true; echo restricted; exit 4", NULL};
    extern char **environ;
    int status;
    pid_t child;
    if (argc < 2) return 97;
    rules = (int)syscall(SYS_landlock_create_ruleset, &all, sizeof all, 0);
    if (rules < 0) return 77;
    allow("/usr", READ);
    allow("/bin", READ);
    allow("/lib", READ);
    allow("/lib64", READ);
    allow("/etc", READ);
    for (int i = 2; i < argc; i++) allow(argv[i], READ | LANDLOCK_ACCESS_FS_WRITE_FILE);
    if (!strcmp(argv[1], "vfork")) {
        child = vfork();
        if (!child) {
            restrict_self();
            execvp("sh", words);
            _exit(96);
        }
        if (waitpid(child, &status, 0) != child || WEXITSTATUS(status) != 4) die("vfork");
        return WEXITSTATUS(system(words[2]));
    }
    restrict_self();
    close(rules);
    if (!strcmp(argv[1], "exec")) execvp("sh", words);
    if (!strcmp(argv[1], "system")) return WEXITSTATUS(system(words[2]));
    if (posix_spawnp(&child, "sh", NULL, NULL, words, environ) || waitpid(child, &status, 0) != child) die("spawn");
    return WEXITSTATUS(status);
}
