//go:build e2e

package e2e

import (
	"os"
	"testing"

	"github.com/mapd-project/mapd/test/e2e/cluster"
)

func TestMain(m *testing.M) { os.Exit(cluster.Main(m)) }
