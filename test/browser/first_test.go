package browser

import "testing"

// A plain static host and `mapd playground` serve the same page.
func TestFirstResult(t *testing.T) {
	for name, base := range map[string]string{"playground": playside, "static host": foreign} {
		t.Run(name, func(t *testing.T) {
			q := example(t, "default-labels")
			b := openTab(t, base+fragment(q))
			want := asked(t, q)
			b.stores(want)
		})
	}
}
