//go:build e2e

package e2e

import (
	"flag"
	"os"
	"sync"
	"testing"

	"github.com/mapd-project/mapd/test/e2e/cluster"
)

func TestMain(m *testing.M) {
	// Tests that run side by side wait for servers more than they compute: three at a time
	// left half of two cores idle. -parallel says otherwise.
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		if err := flag.Set("test.parallel", "4"); err != nil {
			panic(err)
		}
	}
	os.Exit(cluster.Main(m))
}

// part is a part of a test.
type part struct {
	name string
	run  func(t *testing.T)
}

// together runs parts of a test at the same time. Of -parallel they count as one:
// they are long and wait most of the time, so each must not keep another test from
// running, and parallel subtests would begin after all other tests have.
func together(t *testing.T, parts []part) {
	var running sync.WaitGroup
	for _, p := range parts {
		running.Go(func() { t.Run(p.name, p.run) })
	}
	running.Wait()
}
