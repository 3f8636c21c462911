package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mapd-project/mapd/internal/detach"
	"github.com/mapd-project/mapd/internal/parallel"
	"github.com/mapd-project/mapd/pkg/policy"
)

const (
	// compilePatience is how long a snapshot waits for one policy to compile. Ordinary policies
	// need a millisecond.
	compilePatience = time.Second
	// compileDeadline is how long the compilation of one policy may take. Within the bounds of
	// pkg/cel it takes at most a few seconds of CPU time.
	compileDeadline = 30 * time.Second
	// maxSlow bounds the policies that are compiled in the background.
	maxSlow = 8
)

// slow compiles policies. Those that take long are compiled in the background, while updates go
// on without them. It is not safe for concurrent use; its jobs have their own goroutines.
type slow struct {
	// changed is called when takeFinished has something to return.
	changed func()
	// Tests replace compilePolicy, compilePatience and compileDeadline.
	compile            func(ctx context.Context, name string, text []byte, deps policy.Deps) *policyResult
	patience, deadline time.Duration

	running *detach.Group
	jobs    map[string]*job // by the policy's name
}

// job is a policy that is being compiled.
type job struct {
	of     *stored
	ctx    context.Context // done after the deadline, or when the policy has changed
	cancel context.CancelFunc
	result atomic.Pointer[policyResult]
}

// errCompiling is the error of a policy that is still being compiled.
var errCompiling = errors.New("the policy is still being compiled")

func newSlow(changed func()) *slow {
	return &slow{
		changed: changed, compile: compilePolicy, patience: compilePatience, deadline: compileDeadline,
		running: detach.New(runtime.GOMAXPROCS(0) + maxSlow), jobs: map[string]*job{},
	}
}

// takeFinished returns the results of background compilations that have ended or exceeded the
// deadline since the last call, and cancels those of policies that were deleted or changed.
func (s *slow) takeFinished(changed map[string]*stored) map[string]*compiledPolicy {
	out := map[string]*compiledPolicy{}
	for name, j := range s.jobs {
		if now, ok := changed[name]; ok && now != j.of {
			if now != nil && bytes.Equal(now.text, j.of.text) {
				j.of = now
			} else {
				j.cancel()
				delete(s.jobs, name)
				continue
			}
		}
		result := j.result.Load()
		if result == nil && j.ctx.Err() != nil {
			result = brokenPolicy(readable(name, j.of.text), fmt.Errorf("the policy does not compile within %v", s.deadline))
		}
		if result != nil {
			out[name] = &compiledPolicy{j.of, result}
			delete(s.jobs, name)
		}
	}
	return out
}

// compileAll compiles policies on all cores. It leaves out those that take long; takeFinished
// returns them after changed was called.
func (s *slow) compileAll(policies map[string]*stored, deps policy.Deps) map[string]*policyResult {
	var mu sync.Mutex
	results := map[string]*policyResult{}
	// Longer texts come last, because policies that take long are usually among them.
	names := make([]string, 0, len(policies))
	for name := range policies {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int { return len(policies[a].text) - len(policies[b].text) })
	patience := s.patience // for each policy; shorter after one has exceeded it
	full := false
	parallel.Each(len(names), func(i int) {
		mu.Lock()
		wait := patience
		skip := full
		mu.Unlock()
		if skip {
			return
		}
		j, err := s.start(names[i], policies[names[i]], deps, wait)
		mu.Lock()
		defer mu.Unlock()
		var busy *detach.BusyError
		switch {
		case err == nil:
			results[names[i]] = j.result.Load()
		case errors.As(err, &busy) && busy.Ended != nil:
			go func() { <-busy.Ended; s.changed() }()
		case errors.As(err, &busy):
			full = true
			time.AfterFunc(s.patience, s.changed)
		default:
			s.jobs[names[i]] = j
			patience = s.patience / 10
			context.AfterFunc(j.ctx, s.changed)
		}
	})
	return results
}

// start compiles a policy, and waits up to patience for the result. The error is that of
// [detach.Group.Do].
func (s *slow) start(name string, of *stored, deps policy.Deps, patience time.Duration) (*job, error) {
	j := &job{of: of}
	j.ctx, j.cancel = context.WithTimeout(context.Background(), s.deadline)
	wait, stop := context.WithTimeout(context.Background(), patience)
	defer stop()
	err := s.running.Do(wait, name, func() {
		j.result.Store(s.compile(j.ctx, name, of.text, deps))
		j.cancel() // calls changed if nobody waits any more, see compileAll
	})
	if busy := (*detach.BusyError)(nil); errors.As(err, &busy) {
		j.cancel() // the job was not started
	}
	return j, err
}
