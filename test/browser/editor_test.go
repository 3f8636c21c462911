package browser

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

const (
	documentEditor = "#documents .cm-content"
	objectEditor   = "#objects-panel .cm-content"
)

// at returns where a part of an editor's text ends on the screen.
func (b *tab) at(editor, part string) (x, y float64) {
	b.t.Helper()
	b.poll(fmt.Sprintf("%q in %s", part, editor), func() (string, bool) {
		at := eval[struct {
			X, Y float64
			Why  string
		}](b, js(`(s, part) => {
			const line = [...document.querySelectorAll(s + " .cm-line")].find(l => l.textContent.includes(part))
			if (!line) return {Why: "no line has it"}
			line.scrollIntoView({block: "nearest", behavior: "instant"})
			let left = line.textContent.indexOf(part) + part.length
			const walk = document.createTreeWalker(line, NodeFilter.SHOW_TEXT)
			for (let n = walk.nextNode(); n; left -= n.length, n = walk.nextNode()) {
				if (left > n.length) continue
				const r = document.createRange()
				r.setStart(n, left - 1)
				r.setEnd(n, left)
				const box = r.getBoundingClientRect()
				if (!document.querySelector(s).contains(document.elementFromPoint(box.right - 1, box.y + box.height / 2))) return {Why: "it is covered or out of sight"}
				return {X: box.right - 1, Y: box.y + box.height / 2, Why: ""}
			}
			return {Why: "no text"}
		}`, editor, part))
		x, y = at.X, at.Y
		return at.Why, at.Why == ""
	})
	return x, y
}

// cursor puts the cursor behind a part of an editor's text. It clicks until the cursor is
// there: the text moves while it is scrolled to, and where marks and messages appear.
func (b *tab) cursor(editor, part string) {
	b.t.Helper()
	b.poll(fmt.Sprintf("the cursor behind %q in %s", part, editor), func() (string, bool) {
		x, y := b.at(editor, part)
		b.do(func(ctx context.Context) error { return chromedp.Do(ctx, chromedp.MouseClickXY(x, y)) })
		before := eval[string](b, js(`s => {
			const at = document.getSelection(), line = [...document.querySelectorAll(s + " .cm-line")].find(l => l.contains(at.focusNode))
			if (!line || !at.isCollapsed) return ""
			const r = document.createRange()
			r.setStart(line, 0)
			r.setEnd(at.focusNode, at.focusOffset)
			return r.toString()
		}`, editor))
		return fmt.Sprintf("it is behind %q", before), strings.HasSuffix(before, part)
	})
}

// content returns the text of an editor, which must not be so long that a part of it is
// not in the page.
func (b *tab) content(editor string) string {
	b.t.Helper()
	return eval[string](b, js(`s => [...document.querySelectorAll(s + " .cm-line")].map(l => l.textContent).join("\n")`, editor))
}

type place struct {
	Line      int `json:"line"`
	Character int `json:"character"`
}

// after returns the place behind a part of a text.
func after(text, part string) place {
	before, _, _ := strings.Cut(text, part)
	before += part
	line := strings.Count(before, "\n")
	return place{line, len(before) - strings.LastIndex(before, "\n") - 1}
}

const variablePolicy = `  variables:
  - name: team
    expression: "object.metadata.name"
  mutations:
  - patchType: ApplyConfiguration
    applyConfiguration:
      expression: |
        Object{
        metadata: Object.metadata{labels: {'team':   variables.team}},
        spec: Object.spec{priority: 1}}
`

// Typing asks again, and every editor is one of the question.
func TestTyping(t *testing.T) {
	b := openTab(t, playside+fragment(good()))
	b.cursor(documentEditor, "{'a': 'b")
	b.next(func() { b.press("c") })
	q := good()
	q.Documents[0].Text = strings.Replace(q.Documents[0].Text, "'b'", "'bc'", 1)
	b.stores(asked(t, q))

	b.cursor(objectEditor, "name: web")
	b.next(func() { b.press("7") })
	q.Objects = []text{{"pod.yaml", strings.Replace(pod, "web", "web7", 1)}}
	b.stores(asked(t, q))

	// A wrong policy is words with a place. The result of before stays below them, and says to
	// everybody that it is old; it cannot be copied.
	b.write(documentEditor, strings.Replace(q.Documents[0].Text, "Object{", "Object{{", 1))
	b.idle()
	wrong := q
	wrong.Documents = []text{{"policy.yaml", strings.Replace(q.Documents[0].Text, "Object{", "Object{{", 1)}}
	errors := asked(t, wrong).Errors
	if len(errors) == 0 {
		t.Fatal("the policy is not wrong")
	}
	b.says("#pane-result [role=alert]", strings.SplitN(errors[0].Message, "\n", 2)[0])
	b.old("result", true)
	b.says("#pane-result .notice", "Old result")
	b.stores(asked(t, q))
	b.until("no way to copy it", `!document.querySelector("#pane-result .copy").checkVisibility()`)
	b.accessible("an old result")
	// Another pane has it too.
	b.pane("diff")
	b.old("diff", true)
	b.says("#pane-diff .body", "metadata.labels", "a: bc")
	b.click("#tab-result")
	b.write(documentEditor, q.Documents[0].Text)
	b.stores(asked(t, q))
	b.old("result", false)

	// It is of the text that was there; what is opened next has none.
	b.write(documentEditor, wrong.Documents[0].Text)
	b.old("result", true)
	b.open(playside + fragment(wrong))
	b.says("#pane-result [role=alert]", "policy.yaml")
	b.old("result", false)
	if n := eval[int](b, `document.querySelectorAll("#pane-result .code").length`); n != 0 {
		t.Errorf("%d results of what was there before", n)
	}
}

// old waits until a pane says, or does not say, that what it has is old.
func (b *tab) old(pane string, want bool) {
	b.t.Helper()
	b.idle()
	b.until(fmt.Sprintf("old: %t", want), js(`(s, want) => {
		const body = document.querySelector(s + " .body")
		return body.classList.contains("old") === want && /^Old result/.test(body.ariaLabel ?? "") === want && (!want || getComputedStyle(body.querySelector(".row, p")).color === getComputedStyle(document.querySelector(s + " .help")).color)
	}`, "#pane-"+pane, want))
}

// One policy with an error does not hide what the others do.
func TestOneWrong(t *testing.T) {
	q := good()
	q.Documents = append(q.Documents, text{"wrong.yaml", strings.Replace(policyOf("wrong", labelMutation)[0].Text, "Object{", "Object{{", 1)})
	b := openTab(t, playside+fragment(q))
	want := asked(t, q)
	if len(want.Errors) == 0 || len(want.texts()) != 1 {
		t.Fatalf("%+v", want)
	}
	b.stores(want)
	b.old("result", false)
	b.says("#pane-result .notice", "wrong.yaml", "Without MutatingAdmissionPolicy wrong")
	// What somebody writes in the object counts at once.
	b.cursor(objectEditor, "name: web")
	b.next(func() { b.press("7") })
	q.Objects = []text{{"pod.yaml", strings.Replace(pod, "web", "web7", 1)}}
	b.stores(asked(t, q))
}

// A policy without a binding says so, and there are two buttons for it.
func TestUnbound(t *testing.T) {
	q := good()
	q.Unbound = false
	b := openTab(t, playside+fragment(q))
	b.says("#pane-result .call", "good has no binding, so it does nothing")
	b.click("#run-unbound")
	b.stores(asked(t, good()))
	b.click("[name=unbound]")
	b.says("#pane-result .call", "good has no binding")
	b.click("#make-binding")
	b.stores(asked(t, good()))
	if text := b.content(documentEditor); !strings.Contains(text, "kind: MutatingAdmissionPolicyBinding") || !strings.Contains(text, "policyName: good") {
		t.Errorf("no binding in\n%s", text)
	}
	b.until("no call", `!document.querySelector("#pane-result .call")`)
}

// Keys of YAML are deeper below the one before them, and Tab changes no text of somebody who
// passes.
func TestKeysOfEditor(t *testing.T) {
	q := good()
	q.Documents[0].Text = ""
	b := openTab(t, playside+fragment(q))
	b.focus(documentEditor)
	lines := []string{"spec:", "matchConstraints:", "resourceRules:", "- apiGroups: ['']", "apiVersions: [v1]"}
	for i, line := range lines {
		if i > 0 {
			// Enter without the character that a press sends behind it.
			b.do(func(ctx context.Context) error {
				_, err := chromedp.Call(ctx, input.DispatchKeyEvent, input.DispatchKeyEventParams{Type: "rawKeyDown", Key: "Enter", Code: "Enter", WindowsVirtualKeyCode: 13})
				return err
			})
		}
		b.press(line)
	}
	want := "spec:\n  matchConstraints:\n    resourceRules:\n      - apiGroups: ['']\n        apiVersions: [v1]"
	b.poll("the lines", func() (string, bool) {
		got := b.content(documentEditor)
		return got, got == want
	})
	b.press("\t") // somebody writes: it indents
	b.poll("a deeper line", func() (string, bool) {
		got := b.content(documentEditor)
		return got, got == strings.Replace(want, "        apiVersions", "          apiVersions", 1)
	})
	b.press(kb.Escape)
	b.press("\t")
	b.until("the focus out of the editor", `!document.activeElement.closest(".cm-editor")`)
	before := b.content(documentEditor)
	b.focus(documentEditor)
	b.press("\t")
	b.until("the focus out of the editor", `!document.activeElement.closest(".cm-editor")`)
	if got := b.content(documentEditor); got != before {
		t.Errorf("Tab has changed the text to\n%s", got)
	}
}

// Nobody is offered completions of a string or of a comment.
func TestNoCompletionInText(t *testing.T) {
	q := good()
	q.Documents = policyOf("texts", strings.Replace(labelMutation, "Object{metadata", "Object{ metadata", 1))
	b := openTab(t, playside+fragment(q))
	b.cursor(documentEditor, "'a': 'b")
	eval[bool](b, `(globalThis.asked = [], globalThis.post = Worker.prototype.postMessage, Worker.prototype.postMessage = function (m) { if (m.method) asked.push(m.method); return post.apply(this, arguments) }, true)`)
	b.next(func() { b.press("x") })
	b.cursor(documentEditor, "Object{ metadata: Object.metadata{la")
	b.next(func() { b.press("x") }) // here it asks
	b.until("a question", `asked.includes("complete")`)
	if n := eval[int](b, `asked.indexOf("complete") - asked.lastIndexOf("evaluate")`); n < 0 {
		t.Errorf("the engine was asked within a string: %s", eval[string](b, "asked.join()"))
	}
}

// The fields of the request are in the question.
func TestRequestFields(t *testing.T) {
	b := openTab(t, playside+fragment(good()))
	q := good()
	q.Documents = policyOf("fields", `  mutations:
  - patchType: ApplyConfiguration
    applyConfiguration: {expression: "Object{metadata: Object.metadata{labels: {'user': request.userInfo.username, 'groups': string(request.userInfo.groups.size()), 'namespace': request.namespace, 'dry': string(request.dryRun), 'operation': request.operation}}}"}
`)
	q.User, q.Namespace, q.DryRun, q.Kubernetes, q.Operation = &user{"jane", []string{"a", "b"}}, "shop", true, "1.36", "CREATE"
	b.write(documentEditor, q.Documents[0].Text)
	for _, field := range [][2]string{{"username", "jane"}, {"groups", "a, b"}, {"namespace", "shop"}} {
		b.focus("[name=" + field[0] + "]")
		b.press("a", chromedp.ModifierCtrl)
		b.insert(field[1])
	}
	b.click("[name=dryRun]")
	for _, field := range [][2]string{{"kubernetes", "1.36"}, {"operation", "CREATE"}} {
		b.focus("[name=" + field[0] + "]")
		b.press(field[1]) // a select takes the option that is typed
		b.until(field[0], js(`(name, value) => document.querySelector("[name=" + name + "]").value === value`, field[0], field[1]))
	}
	b.stores(asked(t, q))
}

// What the editor knows is what mapd lsp says.
func TestEditor(t *testing.T) {
	q := good()
	q.Documents = policyOf("assist", variablePolicy)
	source := q.Documents[0].Text
	b := openTab(t, playside+fragment(q))
	b.stores(asked(t, q))
	where := func(part string) map[string]any {
		p := after(source, part)
		return map[string]any{"documents": q.Documents, "name": "policy.yaml", "line": p.Line, "character": p.Character}
	}

	t.Run("hover", func(t *testing.T) {
		b := b.in(t)
		want := ask[struct{ Text string }](t, "hover", where("Object.spec{prior"))
		if want.Text == "" {
			t.Fatal("nothing to hover over")
		}
		x, y := b.at(documentEditor, "Object.spec{prior")
		for _, dx := range []float64{-20, -3} { // a move, not a jump
			b.do(func(ctx context.Context) error {
				_, err := chromedp.Call(ctx, input.DispatchMouseEvent, input.DispatchMouseEventParams{Type: "mouseMoved", X: x + dx, Y: y})
				return err
			})
		}
		// Markdown is rendered, so its words are compared.
		b.says(".cm-tooltip-hover", strings.NewReplacer("```cel", "", "`", "").Replace(strings.SplitN(want.Text, "\n\n", 2)[0]))
		b.do(func(ctx context.Context) error {
			_, err := chromedp.Call(ctx, input.DispatchMouseEvent, input.DispatchMouseEventParams{Type: "mouseMoved", X: 1, Y: 1})
			return err
		})
	})

	t.Run("definition", func(t *testing.T) {
		b := b.in(t)
		b.cursor(documentEditor, "variables.te")
		b.press(kb.F12)
		b.until("the definition", `document.querySelector("#documents .cm-activeLine").textContent.includes("name: team")`)
	})

	t.Run("format", func(t *testing.T) {
		b := b.in(t)
		b.cursor(documentEditor, "kind: Mutating")
		b.next(func() { b.click("#format") })
		formatted := b.content(documentEditor)
		if formatted == strings.TrimRight(source, "\n") {
			t.Error("nothing was formatted")
		}
		again := q
		again.Documents = []text{{"policy.yaml", formatted}}
		edits := ask[[]any](t, "format", map[string]any{"documents": again.Documents, "name": "policy.yaml"})
		if len(edits) > 0 {
			t.Errorf("not formatted: %v in\n%s", edits, formatted)
		}
		b.stores(asked(t, q))
	})

	t.Run("completion", func(t *testing.T) {
		b := b.in(t)
		b.write(documentEditor, strings.Replace(source, "object.metadata.name", "object.metadata.na", 1))
		b.cursor(documentEditor, "object.metadata.na")
		b.press(" ", chromedp.ModifierCtrl)
		b.says(".cm-tooltip-autocomplete", "name", "namespace")
		b.until("a selected completion", `document.querySelector(".cm-tooltip-autocomplete [aria-selected=true]")?.textContent.startsWith("name")`)
		// Enter counts when the popup has been there for a moment, so that it cannot take
		// the place of a key that was on its way.
		b.poll("the completion in the text", func() (string, bool) {
			if strings.Contains(b.content(documentEditor), `"object.metadata.name"`) {
				return "", true
			}
			if eval[bool](b, `!!document.querySelector(".cm-tooltip-autocomplete [aria-selected=true]")`) {
				b.press("\t")
			}
			return b.content(documentEditor), false
		})
		b.stores(asked(t, q))
	})

	t.Run("completion of YAML", func(t *testing.T) {
		b := b.in(t)
		b.write(documentEditor, strings.Replace(source, "  mutations:", "  failureP\n  mutations:", 1))
		b.cursor(documentEditor, "  failureP")
		b.press(" ", chromedp.ModifierCtrl)
		b.says(".cm-tooltip-autocomplete", "failurePolicy")
		b.poll("the key in the text", func() (string, bool) {
			if strings.Contains(b.content(documentEditor), "  failurePolicy: \n") {
				return "", true
			}
			if eval[bool](b, `!!document.querySelector(".cm-tooltip-autocomplete [aria-selected=true]")`) {
				b.press("\t")
			}
			return b.content(documentEditor), false
		})
		b.press("I") // the values come while somebody types
		b.says(".cm-tooltip-autocomplete", "Ignore")
	})

	t.Run("diagnostics and a quick fix", func(t *testing.T) {
		b := b.in(t)
		wrong := policyOf("assist", strings.Replace(variablePolicy, "expression: \"object.metadata.name\"", "expression: \"object.metadata.?name.orValue('')\"", 1))[0].Text
		wrong = strings.Replace(wrong, "  mutations:", "  matchConditions:\n  - name: labels\n    expression: object.metadata.labels['a'] == 'b'\n  mutations:", 1)
		type diagnostic struct {
			Message, Rule string
			Fixable       bool
			Range         struct{ Start, End place }
		}
		found := ask[map[string][]diagnostic](t, "diagnose", map[string]any{"documents": []text{{"policy.yaml", wrong}}})["policy.yaml"]
		var fixable *diagnostic
		for i, d := range found {
			if d.Fixable {
				fixable = &found[i]
			}
		}
		if fixable == nil {
			t.Fatalf("nothing to fix in %+v", found)
		}
		b.write(documentEditor, wrong)
		b.until("a mark", js(`n => document.querySelectorAll("#documents .cm-lintRange").length >= n`, len(found)))
		b.cursor(documentEditor, strings.Split(wrong, "\n")[fixable.Range.Start.Line])
		b.press(".", chromedp.ModifierCtrl)
		b.until("a fix", `document.activeElement.closest("[aria-label='Quick fixes']")`)
		b.press("\r")
		b.poll("a text without the finding", func() (string, bool) {
			text := b.content(documentEditor)
			for _, d := range ask[map[string][]diagnostic](t, "diagnose", map[string]any{"documents": []map[string]string{{"name": "policy.yaml", "text": text}}})["policy.yaml"] {
				if d.Rule == fixable.Rule && d.Message == fixable.Message {
					return d.Message, false
				}
			}
			return "", text != strings.TrimRight(wrong, "\n")
		})
	})
}
