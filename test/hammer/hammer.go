// Package hammer answers one question: does this hold when many do it at once?
// Whatever has a lock or an atomic has a test that uses it, to be run with -race.
package hammer

import (
	"os"
	"strconv"
	"sync"
	"testing"
)

// Run has p goroutines call work n times each, and waits for them. They begin
// together.
func Run(p, n int, work func(p, n int)) {
	var all sync.WaitGroup
	start := make(chan struct{})
	for i := range p {
		all.Go(func() {
			<-start
			for j := range n {
				work(i, j)
			}
		})
	}
	close(start)
	all.Wait()
}

// Alone skips a test that computes much on one goroutine if -short is set, as it is when
// make test looks for races (hack/test.sh): the race detector makes it ten times as long and
// has nothing to find. It must be called by the test itself: hack/test.sh reads that.
func Alone(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("one goroutine computes this, and -short is for what several do")
	}
}

// Count returns how many random cases a test has: n in make test, as many times that as
// MAPD_RANDOM says, which is how make random has more, and a fifth of it with -short. Cases
// are the same ones each time, and more of them begin with those of fewer. It must be called
// as Alone must.
func Count(n int) int {
	if times, err := strconv.Atoi(os.Getenv("MAPD_RANDOM")); err == nil && times > 0 {
		n *= times
	}
	if testing.Short() {
		n = max(1, n/5)
	}
	return n
}

// Allocs returns how many allocations one call of f makes: the least of several
// rounds, because a garbage collection empties pools in between. It skips the test
// if races are looked for: pools then drop, at random, some of what they are given.
func Allocs(t testing.TB, f func()) float64 {
	t.Helper()
	if Race {
		t.Skip("the race detector makes pools drop what they are given")
	}
	least := testing.AllocsPerRun(100, f)
	for range 4 {
		least = min(least, testing.AllocsPerRun(100, f))
	}
	return least
}
