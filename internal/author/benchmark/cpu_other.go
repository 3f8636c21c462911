//go:build !unix

package benchmark

import "time"

// cpuTime returns 0: this system does not report it.
func cpuTime() time.Duration { return 0 }
