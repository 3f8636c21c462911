//go:build !js

package main

import (
	"context"
	"fmt"
	"io"
	"os"
)

func main() {
	question, err := io.ReadAll(os.Stdin)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Printf("%s\n", answerJSON(context.Background(), question))
}
