// Runs 20 pipelines of two programs each, and computes at the same time.
package main

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
)

func spin(done <-chan struct{}) {
	for i := 0; ; i++ {
		if i%1000 == 0 {
			select {
			case <-done:
				return
			default:
			}
		}
	}
}

func main() {
	done := make(chan struct{})
	go spin(done)
	for i := 1; i <= 20; i++ {
		seq, sort := exec.Command("seq", "20000"), exec.Command("sort", "-rn")
		pipe, err := seq.StdoutPipe()
		if err != nil {
			panic(err)
		}
		var out strings.Builder
		sort.Stdin, sort.Stdout = pipe, &out
		for _, step := range []func() error{seq.Start, sort.Start, seq.Wait, sort.Wait} {
			if err := step(); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
		}
	}
	close(done)
}
