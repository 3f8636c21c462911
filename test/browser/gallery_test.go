package browser

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/chromedp/chromedp/kb"
)

// An example of the gallery shows what the engine says of it, and so does each part of
// the tour.
func TestGallery(t *testing.T) {
	saved := func(name string) state {
		data, err := os.ReadFile(filepath.Join(site, "gallery", name+".json"))
		if err != nil {
			t.Fatal(err)
		}
		var q state
		if err := json.Unmarshal(data, &q); err != nil {
			t.Fatal(err)
		}
		return q
	}
	b := openTab(t, playside)
	b.click("#gallery")
	b.until("the examples", `document.querySelectorAll("dialog[open] .gallery-list li").length > 20`)
	b.insert("default-labels")
	b.until("the examples that fit", `document.querySelectorAll("dialog[open] .gallery-list li").length === 1`)
	b.press(kb.Enter)
	b.stores(asked(t, saved("default-labels")))

	var entries []struct {
		Name  string
		Words []string
	}
	data, err := os.ReadFile(filepath.Join(site, "gallery/index.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &entries); err != nil {
		t.Fatal(err)
	}
	parts := 0
	for _, e := range entries {
		if e.Words == nil {
			continue
		}
		parts++
		t.Run(e.Name, func(t *testing.T) {
			b := b.in(t)
			b.open(playside + "#example=" + e.Name)
			b.until("its words", `document.querySelector("#tour")`)
			b.says("#tour-title", eval[string](b, js(`name => fetch("gallery/index.json").then(r => r.json()).then(all => all.find(e => e.name === name).title)`, e.Name)))
			want := asked(t, saved(e.Name))
			if want.Errors != nil || want.Results == nil {
				t.Fatalf("the example has no result: %+v", want)
			}
			for _, r := range want.Results {
				b.says("#pane-result", r.Name)
			}
			b.showsObjects(want)
		})
	}
	if parts != 9 {
		t.Errorf("the tour has %d parts", parts)
	}

	for _, name := range []string{"none", "..%2findex", "<img src=x onerror=globalThis.pwned=1>", "__proto__"} {
		b.expect("gallery/none.json", "404")
		b.open(playside + "#example=" + name)
		b.says("#status", "cannot be opened")
		b.unharmed()
	}
}
