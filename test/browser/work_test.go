package browser

import (
	"testing"

	"github.com/chromedp/chromedp"
)

// newTabBeside opens another tab of the same browser profile, which keeps the same things.
func newTabBeside(t *testing.T, b *tab) *tab {
	t.Helper()
	return newTabIn(t, chromedp.WithExistingBrowserContext(chromedp.FromContext(b.ctx).BrowserContextID))
}

// shows waits until the editor of documents has a text.
func (b *tab) shows(text string) {
	b.t.Helper()
	b.until("the text "+text, js(`(s, text) => document.querySelector(s).textContent.includes(text)`, documentEditor, text))
}

// kept waits until the browser has kept a text.
func (b *tab) kept(text string) {
	b.t.Helper()
	b.until("that "+text+" is kept", js(`text => Object.keys(localStorage).some(k => k.startsWith("mapd:work:") && localStorage.getItem(k).includes(text))`, text))
}

// A link, an example and a reset leave what was written before alone, and lead back to it.
func TestWorkIsKept(t *testing.T) {
	b := openTab(t, playside)
	own := "# MINE\n" + good().Documents[0].Text
	b.write(documentEditor, own)
	b.kept("MINE")
	for _, c := range []struct {
		name string
		open func()
	}{
		{"a link", func() { b.open(playside + fragment(good())) }},
		{"an example", func() { b.open(playside + "#example=default-labels") }},
		{"a reset", func() { b.click("#reset") }},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := b.in(t)
			c.open()
			b.until("other text", js(`s => !document.querySelector(s).textContent.includes("MINE")`, documentEditor))
			b.until("the way back", `document.querySelector("#status button") !== null`)
			// One key in what was opened.
			b.write(documentEditor, "# OTHER "+c.name+"\n")
			b.kept("OTHER " + c.name)
			b.kept("MINE")
			b.click("#work")
			b.until("the list", `document.querySelectorAll("dialog ul.work .piece").length >= 2`)
			eval[bool](b, `[...document.querySelectorAll("dialog ul.work .piece")].at(-1).click() ?? true`) // the oldest
			b.shows("MINE")
		})
	}
}

// Back and forward show what the entry had, also what was written there.
func TestBackShowsOwnWork(t *testing.T) {
	b := openTab(t, playside)
	b.write(documentEditor, "# FIRST\n"+good().Documents[0].Text)
	b.kept("FIRST")
	labels := example(t, "default-labels")
	b.open(playside + fragment(labels))
	b.stores(asked(t, labels))
	eval[bool](b, "history.back() ?? true")
	b.shows("FIRST")
	eval[bool](b, "history.forward() ?? true")
	b.stores(asked(t, labels))
	b.write(documentEditor, "# SECOND\n")
	b.kept("SECOND")
	eval[bool](b, "history.back() ?? true")
	b.shows("FIRST")
	eval[bool](b, "history.forward() ?? true")
	b.shows("SECOND")
}

// Two tabs keep two pieces of work, which a reload shows again.
func TestTwoTabs(t *testing.T) {
	one := openTab(t, playside)
	one.write(documentEditor, "# TAB ONE\n")
	one.kept("TAB ONE")
	two := newTabBeside(t, one)
	two.open(playside)
	two.idle()
	two.shows("TAB ONE")
	two.write(documentEditor, "# TAB TWO\n")
	two.kept("TAB TWO")
	for range 2 {
		one.open(playside)
		one.reload()
		two.reload()
		two.shows("TAB TWO")
		one.shows("TAB ONE")
	}
	// A crash is the end of a tab in which nothing runs any more.
	one.write(documentEditor, "# TAB ONE AGAIN\n")
	one.kept("TAB ONE AGAIN")
	three := newTabBeside(t, one)
	three.open(playside)
	three.shows("TAB ONE AGAIN")
}
