package browser

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// A tab is one page in a browser context of its own: nothing is kept from other tabs.
type tab struct {
	t   *testing.T
	ctx context.Context

	mu       sync.Mutex
	problems []string // errors on the console, exceptions, dialogs, CSP reports
	expected []string // parts of problems that the test provokes
}

// watch runs before every script of a page.
const watch = `
	globalThis.violations = []
	addEventListener("securitypolicyviolation", e => violations.push(e.violatedDirective + " refused " + (e.blockedURI || "?") + " at " + e.sourceFile + ":" + e.lineNumber + " " + e.sample))
`

// newTab opens an empty tab. The end of the test closes it, and fails the test if
// anything went wrong in it.
func newTab(t *testing.T) *tab {
	t.Helper()
	return newTabIn(t, chromedp.WithNewBrowserContext())
}

func newTabIn(t *testing.T, options ...chromedp.ContextOption) *tab {
	t.Helper()
	b := &tab{t: t}
	ctx, end := chromedp.NewContext(chromium, append(options, chromedp.WithListener(b.event))...)
	b.ctx = ctx
	if err := chromedp.Do(ctx); err != nil {
		t.Fatal(err)
	}
	b.do(func(ctx context.Context) error {
		_, err := chromedp.Call(ctx, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: watch})
		return err
	})
	t.Cleanup(func() {
		if t.Failed() {
			b.keep()
		}
		b.check()
		end()
	})
	return b
}

// openTab opens a page of the playground and waits for its first answer.
func openTab(t *testing.T, url string) *tab {
	t.Helper()
	b := newTab(t)
	b.open(url)
	b.idle()
	return b
}

// in returns the tab for a part of its test, which fails for what goes wrong in it.
func (b *tab) in(t *testing.T) *tab {
	outer := b.t
	b.t = t
	t.Cleanup(func() {
		if t.Failed() {
			b.keep()
		}
		b.check()
		b.t = outer
	})
	return b
}

func (b *tab) event(ev any) {
	var problem string
	switch ev := ev.(type) {
	case *runtime.EventExceptionThrown:
		problem = "exception: " + ev.ExceptionDetails.Text
		if e := ev.ExceptionDetails.Exception; e != nil {
			problem += " " + e.Description
		}
	case *runtime.EventConsoleAPICalled:
		if ev.Type != runtime.ConsoleAPICalledTypeError && ev.Type != runtime.ConsoleAPICalledTypeAssert {
			return
		}
		problem = "console:"
		for _, a := range ev.Args {
			problem += " " + a.Description + string(a.Value)
		}
	case *log.EventEntryAdded:
		if ev.Entry.Level != log.EntryLevelError {
			return
		}
		problem = fmt.Sprintf("%s: %s (%s)", ev.Entry.Source, ev.Entry.Text, ev.Entry.URL)
	case *page.EventJavascriptDialogOpening:
		problem = "dialog: " + ev.Message
		go chromedp.Call(b.ctx, page.HandleJavaScriptDialog, page.HandleJavaScriptDialogParams{})
	default:
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.problems = append(b.problems, problem)
}

// expect allows problems that contain a part.
func (b *tab) expect(parts ...string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.expected = append(b.expected, parts...)
}

// check reports what went wrong in the page.
func (b *tab) check() {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, *patience)
	defer cancel()
	if v, err := chromedp.Run(ctx, chromedp.Evaluate[[]string]("globalThis.violations ?? []")); err == nil {
		b.mu.Lock()
		b.problems = append(b.problems, v...)
		b.mu.Unlock()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
problems:
	for _, p := range b.problems {
		for _, e := range b.expected {
			if strings.Contains(p, e) {
				continue problems
			}
		}
		b.t.Errorf("in the page: %s", p)
	}
	b.problems = nil
}

// keep writes a picture and the text of a page whose test failed.
func (b *tab) keep() {
	ctx, cancel := context.WithTimeout(b.ctx, time.Minute)
	defer cancel()
	name := filepath.Join(screenshots(b.t), "failed-"+strings.NewReplacer("/", "-", " ", "-").Replace(b.t.Name()))
	if png, err := chromedp.Run(ctx, chromedp.CaptureScreenshot()); err == nil {
		os.WriteFile(name+".png", png, 0o644)
	}
	if text, err := chromedp.Run(ctx, chromedp.Evaluate[string]("location.href.slice(0, 200) + '\\n' + document.body.outerHTML")); err == nil {
		os.WriteFile(name+".html", []byte(text), 0o644)
	}
	b.t.Logf("the page as it was is in %s.png and .html", name)
}

func screenshots(t *testing.T) string {
	dir := filepath.Join(root, "bin/screenshots")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func (b *tab) do(f func(ctx context.Context) error) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, *patience)
	defer cancel()
	if err := f(ctx); err != nil {
		b.t.Fatalf("%v\n%s", err, debug.Stack())
	}
}

// js returns a call of a function in JavaScript with arguments from Go.
func js(function string, args ...any) string {
	texts := make([]string, len(args))
	for i, a := range args {
		texts[i] = string(must(json.Marshal(a)))
	}
	return "(" + function + ")(" + strings.Join(texts, ", ") + ")"
}

// eval evaluates an expression in the page, and waits if it is a promise.
func eval[T any](b *tab, expression string) T {
	b.t.Helper()
	var v T
	b.do(func(ctx context.Context) (err error) {
		v, err = chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
		if err != nil {
			err = fmt.Errorf("%w in %.300s", err, expression)
		}
		return err
	})
	return v
}

// until waits for an expression to be true. While it is not, it may throw.
func (b *tab) until(what, expression string) {
	b.t.Helper()
	b.poll(what, func() (string, bool) {
		why := eval[string](b, `(async () => { try { return (await (`+expression+`)) ? "" : "it is false" } catch (e) { return String(e) } })()`)
		return why, why == ""
	})
}

// poll waits for done. Its first result says what is still missing.
func (b *tab) poll(what string, done func() (string, bool)) {
	b.t.Helper()
	for deadline := time.Now().Add(*patience); ; time.Sleep(20 * time.Millisecond) {
		why, ok := done()
		if ok {
			return
		}
		if time.Now().After(deadline) {
			b.t.Fatalf("waited for %s: %s", what, why)
		}
	}
}

func (b *tab) open(url string) {
	b.t.Helper()
	b.do(func(ctx context.Context) error { return chromedp.Do(ctx, chromedp.Navigate(url)) })
}

func (b *tab) reload() {
	b.t.Helper()
	b.do(func(ctx context.Context) error { return chromedp.Do(ctx, chromedp.Reload()) })
}

// idle waits until everything that was asked is answered.
func (b *tab) idle() {
	b.t.Helper()
	b.until("an answer", `document.body.dataset.state === "idle" && Number(document.body.dataset.turn) > 0`)
}

// turn returns the number of the last answered turn.
func (b *tab) turn() int {
	b.t.Helper()
	return eval[int](b, `Number(document.body.dataset.turn ?? 0)`)
}

// next waits for the answer to what is done, which must change the question.
func (b *tab) next(do func()) {
	b.t.Helper()
	b.idle()
	before := b.turn()
	do()
	b.until("the next answer", fmt.Sprintf(`document.body.dataset.state === "idle" && Number(document.body.dataset.turn) > %d`, before))
}

// says waits for an element to contain all parts.
func (b *tab) says(selector string, parts ...string) {
	b.t.Helper()
	b.poll(fmt.Sprintf("%s to say %q", selector, parts), func() (string, bool) {
		text := eval[string](b, js(`s => document.querySelector(s)?.innerText ?? "no such element"`, selector))
		for _, p := range parts {
			if !strings.Contains(plain(text), plain(p)) {
				return fmt.Sprintf("%q is not in\n%s", p, text), false
			}
		}
		return "", true
	})
}

// stores waits for the pane of results to show exactly the objects of an answer, of
// which there must be some.
func (b *tab) stores(want answer) {
	b.t.Helper()
	if len(want.texts()) == 0 {
		b.t.Fatal("no object to wait for")
	}
	b.showsObjects(want)
}

// showsObjects is stores for answers that may have refused all objects.
func (b *tab) showsObjects(want answer) {
	b.t.Helper()
	if eval[bool](b, `document.querySelector("#pane-result").hidden`) {
		b.click("#tab-result")
	}
	texts := want.texts()
	b.poll("the objects as stored", func() (string, bool) {
		got := eval[[]string](b, `[...document.querySelectorAll("#pane-result .code")].map(c => [...c.querySelectorAll(".row .text")].map(t => t.textContent.trimEnd()).join("\n"))`)
		return fmt.Sprintf("%q\nis not\n%q", got, texts), slices.Equal(got, texts)
	})
}

// plain makes one space of all white space.
func plain(s string) string { return strings.Join(strings.Fields(s), " ") }

// click clicks with the mouse in the middle of the first visible element of a
// selector, once nothing is above it.
func (b *tab) click(selector string) {
	b.t.Helper()
	x, y := b.point(selector)
	b.do(func(ctx context.Context) error { return chromedp.Do(ctx, chromedp.MouseClickXY(x, y)) })
}

// point scrolls to an element and returns its middle, once nothing is above it.
func (b *tab) point(selector string) (x, y float64) {
	b.t.Helper()
	b.poll("a way to "+selector, func() (string, bool) {
		at := eval[struct {
			X, Y float64
			Why  string
		}](b, js(`s => {
			const all = [...document.querySelectorAll(s)]
			const e = all.find(e => e.checkVisibility({visibilityProperty: true}) && e.getClientRects().length > 0)
			if (!e) return {Why: all.length + " elements, none visible"}
			e.scrollIntoView({block: "nearest", inline: "nearest", behavior: "instant"})
			const r = e.getClientRects()[0], x = r.x + r.width / 2, y = r.y + r.height / 2
			const top = document.elementFromPoint(x, y)
			if (!top || !(e === top || e.contains(top) || top.contains(e))) return {Why: "covered by " + (top ? top.outerHTML.slice(0, 200) : "nothing")}
			return {X: x, Y: y, Why: ""}
		}`, selector))
		x, y = at.X, at.Y
		return at.Why, at.Why == ""
	})
	return x, y
}

// press sends keys to what has the focus. kb has names for keys without a character.
func (b *tab) press(keys string, modifiers ...chromedp.Modifier) {
	b.t.Helper()
	b.do(func(ctx context.Context) error {
		return chromedp.Do(ctx, chromedp.KeyEvent(keys, chromedp.KeyModifiers(modifiers...)))
	})
}

// insert puts text where the cursor is, as an input method does.
func (b *tab) insert(text string) {
	b.t.Helper()
	b.do(func(ctx context.Context) error {
		_, err := chromedp.Call(ctx, input.InsertText, input.InsertTextParams{Text: text})
		return err
	})
}

// write replaces the text of an editor by pasting.
func (b *tab) write(editor, text string) {
	b.t.Helper()
	b.focus(editor)
	b.press("a", chromedp.ModifierCtrl)
	b.paste(editor, text)
}

// paste does what the browser does when the user pastes a text.
func (b *tab) paste(editor, text string) {
	b.t.Helper()
	eval[bool](b, js(`(s, text) => {
		const data = new DataTransfer()
		data.setData("text/plain", text)
		return document.querySelector(s).dispatchEvent(new ClipboardEvent("paste", {clipboardData: data, bubbles: true, cancelable: true}))
	}`, editor, text))
}

func (b *tab) focus(selector string) {
	b.t.Helper()
	b.until("the focus on "+selector, js(`s => { const e = document.querySelector(s); e.focus(); return document.hasFocus() && (document.activeElement === e || e.contains(document.activeElement)) }`, selector))
}
