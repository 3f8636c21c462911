package browser

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path"
	"slices"
	"sort"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
)

// loads is how often the page is opened for the times of a first result.
var loads = flag.Int("loads", 5, "how often the page is opened to measure its first result")

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
	b.until(name, js(`name => performance.getEntriesByName(name).length > 0`, name))
	return eval[[]float64](b, js(`name => performance.getEntriesByName(name).map(e => e.duration)`, name))
}

// TestFigures measures what docs/reference/performance.md says of the playground. No time is
// asserted.
func TestFigures(t *testing.T) {
	if !*figures {
		t.Skip("it measures only: make bench-browser")
	}
	var cold, warm []float64
	for i := range *loads {
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
	t.Logf("first result: cold %.0f ms, warm %.0f ms (medians of %d); load %s", quantile(cold, 0.5), quantile(warm, 0.5), len(cold), load())

	b := newTab(t)
	b.clock()
	b.open(playside)
	b.idle()
	one := good()
	many := good()
	many.Documents = nil
	for i := range 100 {
		p := policyOf(fmt.Sprintf("p%02d", i), strings.Replace(labelMutation, "'a': 'b'", fmt.Sprintf("'a%d': 'b'", i), 1))[0]
		p.Name = fmt.Sprintf("p%02d.yaml", i)
		many.Documents = append(many.Documents, p)
	}
	for _, c := range []struct {
		name string
		q    state
	}{{"1 policy", one}, {"100 policies", many}} {
		b.open(playside + fragment(c.q))
		b.stores(asked(t, c.q))
		inObject := b.keystrokes(objectEditor, "name: web", "name: web%s")
		inPolicy := b.keystrokes(documentEditor, ": 'b", ": b%s")
		t.Logf("%-20s key in an object: %s; in a policy: %s; load %s", c.name, spread(inObject), spread(inPolicy), load())
	}
	var objects, policies []float64
	for _, name := range []string{
		"conditional-replace", "escape-key", "image-pull-policy", "ingress-class", "mirror-registry", "namespace-resources", "object-value", "owner-label",
		"security-context", "sidecar-apply", "sidecar-jsonpatch", "tolerations", "topology-spread",
	} {
		q := example(t, name)
		b.open(playside + fragment(q))
		b.stores(asked(t, q))
		inObject := b.keystrokes(objectEditor, "name: ", "")
		inPolicy := b.keystrokes(documentEditor, "name: ", "")
		t.Logf("%-20s key in an object: %s; in a policy: %s; load %s", name, spread(inObject), spread(inPolicy), load())
		objects, policies = append(objects, inObject...), append(policies, inPolicy...)
	}
	t.Logf("%-20s key in an object: %s; in a policy: %s; load %s", "all examples", spread(objects), spread(policies), load())
	t.Logf("memory after all: %d MiB", b.rss()>>20)
}

func spread(ms []float64) string {
	return fmt.Sprintf("p50 %.0f p95 %.0f ms of %d", quantile(ms, 0.5), quantile(ms, 0.95), len(ms))
}

// load is how many processes wanted to run in the last minute.
func load() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	return strings.Fields(string(text))[0]
}

// clock measures in each page from a key, as the browser has it, to the frame in which the answer
// was painted. It asks the page for nothing but the text that it shows.
func (b *tab) clock() {
	b.t.Helper()
	b.do(func(ctx context.Context) error {
		_, err := chromedp.Call(ctx, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: `{
			globalThis.keyTimes = []
			let since = 0, turn = "", want = ""
			globalThis.expectText = text => want = text
			const done = () => {
				const pane = document.querySelector("#pane-result")
				if (!since || document.body.dataset.state !== "idle" || document.body.dataset.turn === turn || !pane.textContent.includes(want) || pane.querySelector(".old")) return
				const began = since
				since = 0
				requestAnimationFrame(() => {
					const c = new MessageChannel()
					c.port1.onmessage = () => keyTimes.push(performance.now() - began)
					c.port2.postMessage(0)
				})
			}
			addEventListener("keydown", e => {
				since = e.timeStamp
				turn = document.body.dataset.turn
			}, true)
			addEventListener("DOMContentLoaded", () => new MutationObserver(done).observe(document.body, {subtree: true, childList: true, characterData: true, attributes: true, attributeFilter: ["data-state", "data-turn"]}))
		}`})
		return err
	})
}

// keystrokes types after a part of an editor's text and takes away what it typed, 20 times. It
// waits for each answer, which has a text for what was typed, and returns how long each took.
func (b *tab) keystrokes(editor, part, text string) []float64 {
	b.t.Helper()
	b.cursor(editor, part)
	eval[bool](b, `(keyTimes.length = 0, true)`)
	want := 0
	key := func(params input.DispatchKeyEventParams, shows string) {
		if text != "" {
			shows = strings.Replace(text, "%s", shows, 1)
		} else {
			shows = ""
		}
		eval[bool](b, js(`text => (expectText(text), true)`, shows))
		b.do(func(ctx context.Context) error {
			for _, kind := range []input.DispatchKeyEventType{"keyDown", "keyUp"} {
				params.Type = kind
				if _, err := chromedp.Call(ctx, input.DispatchKeyEvent, params); err != nil {
					return err
				}
			}
			return nil
		})
		want++
		b.until("the painted answer", fmt.Sprintf("keyTimes.length >= %d", want))
	}
	for range 20 {
		key(input.DispatchKeyEventParams{Key: "x", Code: "KeyX", Text: "x", WindowsVirtualKeyCode: 88}, "x")
		key(input.DispatchKeyEventParams{Key: "Backspace", Code: "Backspace", WindowsVirtualKeyCode: 8}, "")
	}
	return eval[[]float64](b, "keyTimes")
}
