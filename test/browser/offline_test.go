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
