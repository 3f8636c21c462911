//go:build e2e

package e2e

import (
	"flag"
	"os"
	"testing"

	"github.com/mapd-project/mapd/test/e2e/cluster"
)

func TestMain(m *testing.M) {
	// Tests that run side by side wait for servers; they do not compute. Without a
	// -parallel of their own, as many run as TestTwins has lanes.
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
