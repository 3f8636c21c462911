package browser

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path"
	"slices"
	"sort"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
)

var figures = flag.Bool("figures", false, "measure: the figures of docs/reference/performance.md")

// A counter is a proxy of a playground that counts what it sends.
type counter struct {
	http.Handler
	mu    sync.Mutex
	bytes map[string]int64
	files map[string]int
}

func newCounter(t *testing.T) (*counter, string) {
	target := must(url.Parse(playside))
	c := &counter{Handler: &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) },
		// What the browser accepts decides, not what this program can read.
		Transport: &http.Transport{DisableCompression: true},
	}}
	c.reset()
	server := httptest.NewServer(c)
	t.Cleanup(server.Close)
	return c, server.URL + "/"
}

func (c *counter) reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.bytes, c.files = map[string]int64{}, map[string]int{}
}

func (c *counter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	counted := &countingWriter{ResponseWriter: w}
	c.Handler.ServeHTTP(counted, r)
	kind := path.Ext(strings.TrimSuffix(r.URL.Path, ".gz"))
	if kind == "" {
		kind = ".html"
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.bytes[kind] += counted.n
	c.files[kind]++
}

type countingWriter struct {
	http.ResponseWriter
	n int64
}

func (w *countingWriter) Write(b []byte) (int, error) {
	n, err := w.ResponseWriter.Write(b)
	w.n += int64(n)
	return n, err
}

func (w *countingWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (c *counter) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var parts []string
	var total int64
	for kind, n := range c.bytes {
		parts = append(parts, fmt.Sprintf("%s %d bytes in %d", kind, n, c.files[kind]))
		total += n
	}
	sort.Strings(parts)
	return fmt.Sprintf("%d bytes: %s", total, strings.Join(parts, ", "))
}

func quantile(values []float64, q float64) float64 {
	values = slices.Sorted(slices.Values(values))
	return values[min(int(q*float64(len(values))), len(values)-1)]
}

// measured returns the durations of a measure of the page, in milliseconds.
func (b *tab) measured(name string) []float64 {
	b.t.Helper()
	return eval[[]float64](b, js(`name => performance.getEntriesByName(name).map(e => e.duration)`, name))
}

// TestFigures measures what docs/reference/performance.md says of the playground. No time is
// asserted.
func TestFigures(t *testing.T) {
	if !*figures {
		t.Skip("it measures only: make bench-browser")
	}
	var cold, warm []float64
	for i := range 5 {
		// Another port is another site, of which the browser has nothing. It keeps files as
		// large as the program only on disk, so not in a context of its own.
		count, base := newCounter(t)
		b := newTabIn(t)
		b.open(base + fragment(good()))
		b.idle()
		b.until("the service worker", `navigator.serviceWorker.ready.then(r => r.active?.state === "activated")`)
		cold = append(cold, b.measured("mapd:first-result")...)
		if i == 0 {
			t.Logf("transferred cold, with what the service worker keeps: %s", count)
			t.Logf("memory after the first result: %d MiB", b.rss()>>20)
		}
		count.reset()
		b.reload()
		b.idle()
		warm = append(warm, b.measured("mapd:first-result")...)
		if i == 0 {
			t.Logf("transferred warm: %s", count)
		}
		b.do(func(ctx context.Context) error { return chromedp.Do(ctx, chromedp.Navigate("about:blank")) })
	}
	t.Logf("first result: cold %.0f ms, warm %.0f ms (medians of %d)", quantile(cold, 0.5), quantile(warm, 0.5), len(cold))

	many := good()
	many.Documents = nil
	for i := range 100 {
		p := policyOf(fmt.Sprintf("p%02d", i), strings.Replace(labelMutation, "'a'", fmt.Sprintf("'a%d'", i), 1))[0]
		p.Name = fmt.Sprintf("p%02d.yaml", i)
		many.Documents = append(many.Documents, p)
	}
	questions := map[string]state{"100 policies": many}
	for _, name := range []string{
		"conditional-replace", "default-labels", "escape-key", "image-pull-policy", "ingress-class", "mirror-registry", "namespace-resources", "object-value", "owner-label",
		"security-context", "sidecar-apply", "sidecar-jsonpatch", "sidecar-params", "team-annotations", "tolerations", "topology-spread",
	} {
		questions[name] = example(t, name)
	}
	b := openTab(t, playside)
	var objects, policies []float64
	for _, name := range slices.Sorted(maps.Keys(questions)) {
		q := questions[name]
		b.open(playside + fragment(q))
		b.stores(asked(t, q))
		inObject := b.keystrokes(objectEditor, "name: ")
		inPolicy := b.keystrokes(documentEditor, "name: ")
		t.Logf("%-20s key in an object: p50 %.1f p95 %.1f ms; in a policy: p50 %.1f p95 %.1f ms", name,
			quantile(inObject, 0.5), quantile(inObject, 0.95), quantile(inPolicy, 0.5), quantile(inPolicy, 0.95))
		if name != "100 policies" {
			objects, policies = append(objects, inObject...), append(policies, inPolicy...)
		}
	}
	t.Logf("all examples         key in an object: p50 %.1f p95 %.1f ms; in a policy: p50 %.1f p95 %.1f ms, of %d and %d",
		quantile(objects, 0.5), quantile(objects, 0.95), quantile(policies, 0.5), quantile(policies, 0.95), len(objects), len(policies))
	t.Logf("memory after all: %d MiB", b.rss()>>20)
}

// keystrokes types after a part of an editor's text, waits for each answer, and returns
// how long each took from the key to the painted result.
func (b *tab) keystrokes(editor, part string) []float64 {
	b.t.Helper()
	b.cursor(editor, part)
	eval[bool](b, `(performance.clearMeasures("mapd:turn"), true)`)
	for range 20 {
		b.next(func() { b.insert("x") })
		b.next(func() {
			b.do(func(ctx context.Context) error {
				for _, kind := range []input.DispatchKeyEventType{"rawKeyDown", "keyUp"} {
					if _, err := chromedp.Call(ctx, input.DispatchKeyEvent, input.DispatchKeyEventParams{Type: kind, Key: "Backspace", Code: "Backspace", WindowsVirtualKeyCode: 8}); err != nil {
						return err
					}
				}
				return nil
			})
		})
	}
	b.until("the last measure", `new Promise(r => requestAnimationFrame(() => setTimeout(r))).then(() => performance.getEntriesByName("mapd:turn").length >= 40)`)
	return b.measured("mapd:turn")
}
