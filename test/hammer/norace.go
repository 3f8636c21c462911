//go:build !race

package hammer

// Race says that the race detector is on: a process takes several times its memory
// and time.
const Race = false
