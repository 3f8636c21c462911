package detach_test

import (
	"context"
	"fmt"

	"github.com/mapd-project/mapd/internal/detach"
)

func Example() {
	work := detach.New(4) // at most four pieces of work at once
	compiled := false
	err := work.Do(context.Background(), "policy a", func() { compiled = true })
	fmt.Println(compiled, err)

	// Work that cannot be interrupted goes on, but its caller stops waiting.
	ctx, cancel := context.WithCancel(context.Background())
	begun, release := make(chan bool), make(chan bool)
	go func() { <-begun; cancel() }()
	err = work.Do(ctx, "policy b", func() { close(begun); <-release })
	fmt.Println(err, work.Abandoned())
	close(release)
	// Output:
	// true <nil>
	// context canceled 1
}
