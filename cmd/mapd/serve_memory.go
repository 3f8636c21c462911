package main

import (
	"log/slog"
	"math"
	"os"
	"runtime/debug"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/mapd-project/mapd/pkg/memory"
)

const (
	// memoryShare is how much of the container's memory Go may use before the
	// garbage collector works harder: the kernel kills at the limit, and the
	// program's own pages count as well.
	memoryShare = 0.8
	// heapShare is how much of that policies and reviews may hold together. The rest
	// is for what the garbage collector has not freed yet and for pages that are
	// not full.
	heapShare = 0.75
	// leastShare is what reviews have of it at least, however much policies need.
	leastShare = 0.1
	// usualMemory stands for the memory limit where there is none: that of the
	// manifests, with memoryShare.
	usualMemory = 400 << 20
)

// limitToContainer does what GOMEMLIMIT says or, without it, keeps Go to its share of
// what the container may have.
func limitToContainer() (limit int64) {
	_, _ = memlimit.Set(memlimit.WithRatio(memoryShare)) // fails outside of a container
	return debug.SetMemoryLimit(-1)
}

// moduleMemory limits the memory of a command that runs modules. A quarter of it is for all
// modules together; the old memory of one that grows counts until it is copied.
const moduleMemory = 1 << 30

// limitCommand limits the memory of a command that runs modules, in a container as that of a
// server. It returns what modules are bounded by.
func limitCommand() (limit int64) {
	limit = limitToContainer()
	if limit == math.MaxInt64 {
		debug.SetMemoryLimit(moduleMemory)
	}
	return min(limit, moduleMemory)
}

// limitMemory limits the memory of a server. It returns the budget for reviews: flag, or what
// the policies leave of the limit.
func limitMemory(flag string, log *slog.Logger) (*memory.Budget, error) {
	limit := limitToContainer()
	if limit == math.MaxInt64 {
		limit = usualMemory
	}
	var budget *memory.Budget
	if flag == "" {
		budget = memory.Beside(int64(heapShare*float64(limit)), int64(leastShare*float64(limit)))
	} else {
		q, err := resource.ParseQuantity(flag)
		if err != nil || q.Value() < leastReviewMemory {
			return nil, usagef("serve: --review-memory %q: must be a quantity of at least %dMi, such as 128Mi", flag, leastReviewMemory>>20)
		}
		budget = memory.New(q.Value())
	}
	log.Debug("memory limit", "bytes", limit, "reviews", budget.Limit())
	return budget, nil
}

// loadingPercent is GOGC while policies are loaded. Loading leaves garbage among
// policies that stay, and most pages that the garbage touched are then held for good,
// so less garbage at a time means fewer pages.
const loadingPercent = 50

// loadFrugally keeps garbage small until loaded is called, unless the environment
// sets GOGC.
func loadFrugally() (loaded func()) {
	if os.Getenv("GOGC") != "" {
		return debug.FreeOSMemory
	}
	usual := debug.SetGCPercent(loadingPercent)
	return func() {
		debug.SetGCPercent(usual)
		debug.FreeOSMemory()
	}
}

// leastReviewMemory lets a review of a usual object through.
const leastReviewMemory = 8 << 20
