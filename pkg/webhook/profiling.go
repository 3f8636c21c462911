package webhook

import "context"

// Profiling serves pprof on a loopback address until ctx is done.
func Profiling(ctx context.Context, addr string) error { return nil }
