package browser

import "testing"

// Once loaded, the page works without the server: another group's schemas included,
// which it had no use for before.
func TestOffline(t *testing.T) {
	server, err := startPlayground()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.stop)
	b := openTab(t, server.url+fragment(good()))
	b.until("the service worker", `navigator.serviceWorker.ready.then(r => r.active?.state === "activated")`)
	server.stop()

	q := example(t, "ingress-class")
	want := asked(t, q)
	b.reload()
	b.idle()
	b.stores(asked(t, good()))
	b.open(server.url + fragment(q))
	b.stores(want)
}

// A private window, which keeps no large file in memory, fetches the program once.
func TestProgramOnce(t *testing.T) {
	count, base := newCounter(t)
	b := newTab(t)
	b.open(base + fragment(good()))
	b.idle()
	b.until("the service worker", `navigator.serviceWorker.ready.then(r => r.active?.state === "activated")`)
	count.mu.Lock()
	defer count.mu.Unlock()
	if count.files[".wasm"] != 1 {
		t.Errorf("the program was fetched %d times, %d bytes", count.files[".wasm"], count.bytes[".wasm"])
	}
	if left := eval[bool](b, `caches.has("mapd handed over")`); left {
		t.Error("the page keeps the program a second time")
	}
}
