package cases

import (
	"slices"
	"strconv"
	"strings"
	"testing"
)

// What the corpus promises: enough cases, of every section that describes
// behaviour, each with a story of its own.
func TestCorpus(t *testing.T) {
	all := All(t)
	const enough = 250
	if len(all) < enough {
		t.Errorf("%d cases, want at least %d", len(all), enough)
	}
	stories := map[string]string{}
	covered := map[string]bool{}
	vectors := map[string]bool{}
	for _, c := range all {
		if other, taken := stories[c.Story]; taken {
			t.Errorf("%s tells the story of %s", c.Name, other)
		}
		stories[c.Story] = c.Name
		covered[c.Section] = true
		for _, v := range c.Vectors {
			vectors[v] = true
		}
		if len(c.Skip) == len(runners) {
			t.Errorf("%s is skipped by everybody", c.Name)
		}
	}
	// The sections that say what happens to a request. 1.1, 1.2, 1.4 and 1.5 are
	// about writing policies, 2.1 and 8.1 are covered by the rest of their chapter.
	for _, s := range strings.Fields(`1.3 2.2 2.3 2.4 2.5 2.6 2.7 2.8 3.1 3.2 3.4 4.1 4.2 4.3 4.4 5
		6.1 6.2 6.3 6.4 6.5 6.6 6.7 7.1 7.2 7.3 7.4 7.6 8.1 8.2 8.3 9.1 9.2 9.3 9.4 9.5`) {
		if !covered[s] {
			t.Errorf("no case for section %s", s)
		}
	}
	// Vectors that no in-process runner can show.
	elsewhere := []string{}
	for i := 1; i <= 45; i++ {
		v := "A" + strconv.Itoa(i)
		if !vectors[v] && !slices.Contains(elsewhere, v) {
			t.Errorf("no case for vector %s", v)
		}
	}
}
