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
	// memoryShare is the share of the container's memory limit that becomes Go's memory limit.
	// The kernel kills at the container's limit, and the program's own pages count for that
	// too.
	memoryShare = 0.8
	// heapShare is the share of Go's memory limit that policies and reviews may hold together.
	// The rest is for memory that the garbage collector has not freed yet and for pages that
	// are not full.
	heapShare = 0.75
	// leastShare is the least share of that for reviews, however much policies need.
	leastShare = 0.1
	// usualMemory is assumed if there is no memory limit: the limit of the manifests times
	// memoryShare.
	usualMemory = 400 << 20
)

// limitToContainer sets Go's memory limit to GOMEMLIMIT or, without it, to memoryShare of the
// container's limit.
func limitToContainer() (limit int64) {
	_, _ = memlimit.Set(memlimit.WithRatio(memoryShare)) // fails outside of a container
	return debug.SetMemoryLimit(-1)
}

// moduleMemory is the memory limit of a command that runs modules. A quarter of it is for all
// modules together; while the memory of a module grows, the old one counts until it is copied.
const moduleMemory = 1 << 30

// limitCommand limits the memory of a command that runs modules; in a container as for a
// server. It returns the limit, from which the bound for modules follows.
func limitCommand() (limit int64) {
	limit = limitToContainer()
	if limit == math.MaxInt64 {
		debug.SetMemoryLimit(moduleMemory)
	}
	return min(limit, moduleMemory)
}

// limitMemory limits the memory of a server. It returns the budget for reviews: the value of
// flag, or what the policies leave of the limit.
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

// loadingPercent is GOGC while policies are loaded. Garbage of loading lies between policies
// that stay, and most pages with such garbage are never returned, so less garbage at a time
// means fewer pages.
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

// leastReviewMemory suffices for a review of a usual object.
const leastReviewMemory = 8 << 20
