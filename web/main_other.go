//go:build !(js && mapd_fetch)

package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
)

// main reads lines, each the name of a method and its parameters as JSON, and prints
// the answers, so that they can be compared with those of the program for a browser.
func main() {
	d := newDesk()
	in := bufio.NewReader(os.Stdin)
	for {
		line, err := in.ReadString('\n')
		if name, params, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " "); ok {
			answer, err := d.call(context.Background(), name, []byte(params))
			if err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
			fmt.Printf("%s\n", answer)
		}
		if err == io.EOF {
			return
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}
