// A Go program that is linked with C. It forks in C, and it starts programs by Go's own system calls.
package main

/*
#include <sys/wait.h>
#include <unistd.h>

static int forked(void) {
	int status = -1;
	pid_t pid = fork();
	if (!pid) _exit(3);
	waitpid(pid, &status, 0);
	return WEXITSTATUS(status);
}
*/
import "C"

import (
	"fmt"
	"os"
	"os/exec"
)

func main() {
	fmt.Println(C.forked())
	for i := 0; i < 3; i++ {
		out, err := exec.Command("/bin/echo", "from Go").Output()
		fmt.Print(string(out), err, "\n")
	}
	os.Exit(4)
}
