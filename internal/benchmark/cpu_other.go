//go:build !unix

package benchmark

import "time"

// cpuTime is not known here.
func cpuTime() time.Duration { return 0 }
