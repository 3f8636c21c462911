package browser

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// theme sets what the system of the user prefers.
func (b *tab) theme(name string) {
	b.t.Helper()
	b.do(func(ctx context.Context) error {
		_, err := chromedp.Call(ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: name}, {Name: "prefers-reduced-motion", Value: "reduce"}},
		})
		return err
	})
	b.until("the theme "+name, js(`name => matchMedia("(prefers-color-scheme: " + name + ")").matches`, name))
}

// phone makes the tab as wide as a phone.
func (b *tab) phone() {
	b.t.Helper()
	b.do(func(ctx context.Context) error {
		return chromedp.Do(ctx, chromedp.EmulateViewport(390, 844, chromedp.EmulateMobile))
	})
	b.until("the width of a phone", "screen.width === 390")
}

// picture keeps a screenshot in bin/screenshots.
func (b *tab) picture(name string) {
	b.t.Helper()
	// Two frames: the first has what was changed, the second is on the screen.
	eval[int](b, `new Promise(r => requestAnimationFrame(() => requestAnimationFrame(() => r(0))))`)
	b.do(func(ctx context.Context) error {
		png, err := chromedp.Run(ctx, chromedp.CaptureScreenshot())
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(screenshots(b.t), name+".png"), png, 0o644)
	})
}

// accessible asserts that axe-core finds nothing serious.
func (b *tab) accessible(what string) {
	b.t.Helper()
	path := filepath.Join(root, "web/app/node_modules/axe-core/axe.min.js")
	source, err := os.ReadFile(path)
	if err != nil {
		b.t.Fatalf("%v; npm ci in web/app installs it", err)
	}
	eval[bool](b, `{ if (!globalThis.axe) { `+string(source)+`}; true }`)
	type violation struct {
		ID, Impact, Help string
		Nodes            []struct{ HTML, FailureSummary string }
	}
	found := eval[[]violation](b, `axe.run(document, {resultTypes: ["violations"]}).then(r => r.violations.map(v => ({ID: v.id, Impact: v.impact, Help: v.help, Nodes: v.nodes.slice(0, 5).map(n => ({HTML: n.html.slice(0, 200), FailureSummary: n.failureSummary}))})))`)
	for _, v := range found {
		if v.Impact != "serious" && v.Impact != "critical" {
			continue
		}
		for _, n := range v.Nodes {
			b.t.Errorf("%s: %s, %s: %s\n%s\n%s", what, v.Impact, v.ID, v.Help, n.HTML, n.FailureSummary)
		}
	}
}

// fits asserts that the page is not wider than the screen.
func (b *tab) fits(what string) {
	b.t.Helper()
	if wide := eval[string](b, `(() => {
		const most = document.documentElement.clientWidth
		if (document.documentElement.scrollWidth <= most) return ""
		return document.documentElement.scrollWidth + " of " + most + ": " + [...document.querySelectorAll("body *")].filter(e => e.getBoundingClientRect().right > most + 1).slice(0, 5).map(e => e.outerHTML.slice(0, 120)).join("\n")
	})()`); wide != "" {
		b.t.Errorf("%s: the page is wider than the screen: %s", what, wide)
	}
}

// The page as people see it: in both themes, on a desktop and on a phone, in each of its
// panes. It has no serious finding of axe-core, and pictures of it are kept.
func TestLook(t *testing.T) {
	q := example(t, "sidecar-params")
	q.Documents = append(q.Documents, text{"mutator.yaml", mutator})
	b := openTab(t, playside+fragment(q))
	for _, theme := range []string{"light", "dark"} {
		t.Run(theme, func(t *testing.T) {
			b := b.in(t)
			b.theme(theme)
			b.idle()
			for _, pane := range paneNames {
				b.pane(pane)
				b.accessible(pane)
				b.picture(theme + "-" + pane)
			}
			wrong := good()
			wrong.Documents = policyOf("wrong", strings.Replace(labelMutation, "Object{", "Object{{", 1))
			b.open(playside + fragment(wrong))
			b.says(b.pane("result"), "policy.yaml")
			b.accessible("an error")
			b.picture(theme + "-error")
			b.click("#gallery")
			b.until("the gallery", `document.querySelectorAll("dialog[open] .gallery-list li").length > 20`)
			b.accessible("the gallery")
			b.picture(theme + "-gallery")
			b.press(kb.Escape)
			b.until("no dialog", `!document.querySelector("dialog[open]")`)
			b.open(playside + fragment(q))
			b.stores(asked(t, q))
		})
	}
	t.Run("phone", func(t *testing.T) {
		b := b.in(t)
		b.phone()
		for _, theme := range []string{"light", "dark"} {
			b.theme(theme)
			for _, pane := range paneNames {
				b.pane(pane)
				b.fits(pane)
				b.picture("phone-" + theme + "-" + pane)
			}
			b.accessible("phone, " + theme)
		}
	})
}

// The gallery and the docs.
func TestLookOfPages(t *testing.T) {
	b := newTab(t)
	for _, theme := range []string{"light", "dark"} {
		for _, path := range []string{"docs/", "docs/author/eval.html", "docs/author/tour-nine.html"} {
			name := theme + "-" + strings.NewReplacer("/", "-", ".html", "").Replace(strings.TrimSuffix(path, "/"))
			b.theme(theme)
			b.open(playside + path)
			b.until("the page", `document.readyState === "complete"`)
			b.accessible(name)
			b.picture(name)
		}
	}
	b.phone()
	b.open(playside + "docs/")
	b.fits("docs")
	b.picture("phone-docs")
}

// A whole task without a mouse: write a policy and an object, look at the difference,
// and share it. Whatever has the focus shows it.
func TestKeyboard(t *testing.T) {
	b := openTab(t, playside)
	want := good()
	want.Documents[0].Text += "---\napiVersion: admissionregistration.k8s.io/v1\nkind: MutatingAdmissionPolicyBinding\nmetadata: {name: b}\nspec: {policyName: good}\n"

	b.tabTo(documentEditor)
	b.press("a", chromedp.ModifierCtrl)
	b.paste(documentEditor, want.Documents[0].Text)
	b.press(kb.F6) // from region to region
	b.tabTo(objectEditor)
	b.press("a", chromedp.ModifierCtrl)
	b.paste(objectEditor, pod)
	b.press(kb.F6)
	b.stores(asked(t, state{Documents: want.Documents[:1], Objects: []text{{"o.yaml", pod}}}))

	b.tabTo("#tab-result")
	b.press(kb.ArrowRight)
	b.until("the focus on the next tab", `document.activeElement.id === "tab-diff" && !document.querySelector("#pane-diff").hidden`)
	b.says("#pane-diff", "metadata.labels", "a: b")

	b.press(kb.F6)
	b.tabTo("#share")
	b.press(kb.Enter)
	b.until("a link", `location.hash.startsWith("#1.")`)
	got := unpacked(t, eval[string](b, "location.href"))
	if got.Documents[0].Text != want.Documents[0].Text || got.Objects[0].Text != pod {
		t.Errorf("the link has %+v", got)
	}
}

// tabTo presses the tab key until an element has the focus. Each element on the way
// must show that it has it.
func (b *tab) tabTo(selector string) {
	b.t.Helper()
	reached := js(`s => { const e = document.querySelector(s); return !!e && (e === document.activeElement || e.contains(document.activeElement)) }`, selector)
	for n := 0; !eval[bool](b, reached); n++ {
		if n > 100 {
			b.t.Fatalf("the tab key does not lead to %s; the focus is at %s", selector, eval[string](b, `document.activeElement.outerHTML.slice(0, 200)`))
		}
		b.press("\t")
		if eval[bool](b, `document.activeElement.isContentEditable`) {
			b.until("the cursor of the editor", `document.activeElement.closest(".cm-focused").querySelector(".cm-cursor")`)
			continue
		}
		if hidden := eval[string](b, `(() => {
			const e = document.activeElement
			if (e === document.body) return ""
			for (let x = e; x; x = x.parentElement) {
				const s = getComputedStyle(x)
				if (s.outlineStyle !== "none" && s.outlineWidth !== "0px" || s.boxShadow !== "none") return ""
				if (x !== e) break
			}
			return e.outerHTML.slice(0, 200)
		})()`); hidden != "" {
			b.t.Errorf("one cannot see that this has the focus: %s", hidden)
		}
	}
}

// The states that somebody meets, in both themes and on a phone. Pictures are kept in
// bin/screenshots.
func TestLookOfStates(t *testing.T) {
	many := good()
	many.Documents, many.Unbound = nil, true
	many.Objects = []text{{"pod.yaml", "apiVersion: v1\nkind: Pod\nmetadata:\n  name: web\nspec:\n  containers:\n  - name: app\n    image: nginx\n"}}
	for i := range 100 {
		p := policyOf(fmt.Sprintf("team-label-%02d", i), strings.Replace(labelMutation, "'a': 'b'", fmt.Sprintf("'label-%02d': 'b'", i), 1))[0]
		p.Name = fmt.Sprintf("p%02d.yaml", i)
		many.Documents = append(many.Documents, p)
	}
	noMatch := good()
	noMatch.Objects = []text{{"node.yaml", "apiVersion: v1\nkind: Node\nmetadata: {name: worker}\n"}}
	unbound := good()
	unbound.Unbound = false
	states := []struct {
		name string
		open func(b *tab)
	}{
		{"first", func(b *tab) { b.open(playside); b.idle() }},
		{"old", func(b *tab) {
			q := example(t, "sidecar-apply")
			b.open(playside + fragment(q))
			b.stores(asked(t, q))
			b.write(documentEditor, strings.Replace(q.Documents[0].Text, "Object{", "Object{{", 1))
			b.old("result", true)
		}},
		{"no-match", func(b *tab) { b.open(playside + fragment(noMatch)); b.says("#pane-result", "no policy matched") }},
		{"unbound", func(b *tab) { b.open(playside + fragment(unbound)); b.says("#pane-result .call", "no binding") }},
		{"100-policies", func(b *tab) { b.open(playside + fragment(many)); b.stores(asked(t, many)) }},
	}
	for _, phone := range []bool{false, true} {
		for _, theme := range []string{"light", "dark"} {
			for _, s := range states {
				name := "state-" + theme + "-" + s.name
				if phone {
					name = "phone-" + name
				}
				t.Run(name, func(t *testing.T) {
					b := newTab(t)
					if phone {
						b.phone()
					}
					b.theme(theme)
					if phone && s.name == "old" {
						return // its editor is behind a button
					}
					s.open(b)
					b.fits(name)
					b.accessible(name)
					b.picture(name)
				})
			}
		}
	}
}
