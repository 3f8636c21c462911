package browser

import (
	"bytes"
	"compress/flate"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
)

// script runs if a page takes text for HTML: it sets a global, asks another host and
// opens a dialog.
const script = `"><img src=x onerror="globalThis.pwned=1"><script>globalThis.pwned=1;alert(1)</script><img src="http://evil.test/x"><svg onload="globalThis.pwned=1"><a href="javascript:globalThis.pwned=1">here</a>`

// unharmed asserts that nothing of script took effect.
func (b *tab) unharmed() {
	b.t.Helper()
	if eval[bool](b, `"pwned" in globalThis || "pwned" in {} || "polluted" in {}`) {
		b.t.Error("a script of the link ran")
	}
	if n := eval[int](b, `document.querySelectorAll("img[onerror], svg[onload], body script, [href^='javascript:'], [src*='evil.test'], [href*='evil.test']:not([rel='noopener noreferrer']), iframe, object, embed").length`); n != 0 {
		b.t.Errorf("%d elements of the link are elements of the page", n)
	}
	if hosts := reached.by("evil.test"); len(hosts) > 0 {
		b.t.Errorf("the page asked %v", hosts)
	}
}

// raw returns the end of a link whose packed state is data.
func raw(data string) string { return "#1." + packed([]byte(data)) }

// zeros returns n zero bytes, compressed.
func zeros(n int64) string {
	var out bytes.Buffer
	w := must(flate.NewWriter(&out, flate.BestCompression))
	for block := make([]byte, 1<<20); n > 0; n -= int64(len(block)) {
		must(w.Write(block))
	}
	if err := w.Close(); err != nil {
		panic(err)
	}
	return base64.RawURLEncoding.EncodeToString(out.Bytes())
}

// A link that cannot be read is an error in words, and the page works after it.
func TestBrokenLinks(t *testing.T) {
	links := map[string]string{
		"not base64":       "#1.%%%%",
		"HTML":             "#1." + script,
		"HTML, escaped":    "#1.%3Cimg%20src=x%20onerror=%22globalThis.pwned=1%22%3E",
		"newer version":    strings.Replace(fragment(good()), "#1.", "#2.", 1),
		"huge version":     "#99999999999999999999." + packed([]byte("{}")),
		"not compressed":   "#1." + base64.RawURLEncoding.EncodeToString([]byte(`{"documents": []}`)),
		"cut":              fragment(good())[:len(fragment(good()))/2],
		"empty":            "#1.",
		"a bomb of zeros":  "#1." + zeros(64<<20),
		"5 MiB":            raw(`{"documents": [{"name": "a", "text": "` + strings.Repeat("x", 5<<20) + `"}], "objects": []}`),
		"not JSON":         raw(script),
		"null":             raw("null"),
		"a number":         raw("7"),
		"a list":           raw("[]"),
		"a text":           raw(`"documents"`),
		"deep":             raw(strings.Repeat("[", 100_000)),
		"deep documents":   raw(`{"documents": ` + strings.Repeat("[", 50_000) + strings.Repeat("]", 50_000) + `, "objects": []}`),
		"documents":        raw(`{"documents": "a", "objects": []}`),
		"document":         raw(`{"documents": [7], "objects": []}`),
		"document is null": raw(`{"documents": [null], "objects": []}`),
		"document's name":  raw(`{"documents": [{"name": {}, "text": "a"}], "objects": []}`),
		"document's text":  raw(`{"documents": [{"name": "a", "text": ["a"]}], "objects": []}`),
		"objects":          raw(`{"documents": [], "objects": {"length": 3}}`),
		"old":              raw(`{"documents": [], "objects": [], "old": 1}`),
		"operation":        raw(`{"documents": [], "objects": [], "operation": ["CREATE"]}`),
		"subresource":      raw(`{"documents": [], "objects": [], "subresource": {}}`),
		"user":             raw(`{"documents": [], "objects": [], "user": "me"}`),
		"user's name":      raw(`{"documents": [], "objects": [], "user": {"username": 7}}`),
		"groups":           raw(`{"documents": [], "objects": [], "user": {"groups": "all"}}`),
		"a group":          raw(`{"documents": [], "objects": [], "user": {"groups": [[]]}}`),
		"namespace":        raw(`{"documents": [], "objects": [], "namespace": 7}`),
		"kubernetes":       raw(`{"documents": [], "objects": [], "kubernetes": 1.37}`),
		"unbound":          raw(`{"documents": [], "objects": [], "unbound": "yes"}`),
		"dryRun":           raw(`{"documents": [], "objects": [], "dryRun": "yes"}`),
	}
	want := asked(t, good())
	b := openTab(t, playside+fragment(good()))
	for name, link := range links {
		t.Run(name, func(t *testing.T) {
			b := b.in(t)
			eval[bool](b, `{ const s = document.querySelector("#status"); s.textContent = ""; true }`)
			b.open(playside + link)
			b.until("words about the link", `/link/i.test([...document.querySelectorAll("#status, [role=alert]")].map(e => e.innerText).join(" "))`)
			b.unharmed()
			b.open(playside + fragment(good()))
			b.stores(want)
		})
	}
	// Such a fragment is no link of a page, as that of a heading is none.
	for _, other := range []string{"#" + script, "#javascript:globalThis.pwned=1", "#documents"} {
		b.open(playside + other)
		b.unharmed()
		b.stores(want)
	}
	t.Run("in a new tab", func(t *testing.T) {
		b := newTab(t)
		b.open(playside + links["HTML"])
		b.until("words about the link", `/link/i.test([...document.querySelectorAll("#status, [role=alert]")].map(e => e.innerText).join(" "))`)
		b.idle() // on its own example
		b.unharmed()
	})
}

// hostile has HTML wherever a link can have a text.
func hostile() map[string]state {
	crd := `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  names: {kind: Widget, plural: widgets}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        description: ` + fmt.Sprintf("%q", script) + `
        properties:
          spec:
            type: object
            description: ` + fmt.Sprintf("%q", script+" [link](javascript:globalThis.pwned=1) ![i](http://evil.test/y)") + `
            properties: {size: {type: integer, description: ` + fmt.Sprintf("%q", script) + `}}
`
	labels := fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata:
  name: web
  annotations: {%q: %q, a: %q}
spec: {containers: [{name: app, image: %q}]}
`, script, script, script, script)
	value := strings.NewReplacer(`\`, `\\\\`, `"`, `\\\"`, `'`, `\'`).Replace(script)
	values := policyOf("values", `  variables:
  - {name: html, expression: "'`+value+`'"}
  mutations:
  - patchType: ApplyConfiguration
    applyConfiguration: {expression: "Object{metadata: Object.metadata{annotations: {'a': variables.html + '!', 'b': variables.html}}}"}
`)
	html := func(documents []text, object string) state {
		return state{Documents: documents, Objects: []text{{"<b>" + script + ".yaml", object}}, Unbound: true}
	}
	return map[string]state{
		"values":  html(values, labels),
		"names":   html([]text{{script, values[0].Text}, {script + "2", "kind: " + fmt.Sprintf("%q", script)}}, labels),
		"errors":  html(policyOf("errors", "  matchConditions:\n  - {name: html, expression: "+fmt.Sprintf("%q", script)+"}\n"+labelMutation), labels),
		"refusal": html(policyOf("refused", "  matchConditions:\n  - {name: fails, expression: \"int('"+value+"') == 1\"}\n"+labelMutation), labels),
		"object":  html(good().Documents, "apiVersion: v1\nkind: "+fmt.Sprintf("%q", script)+"\nmetadata: {name: "+fmt.Sprintf("%q", script)+"}\n"),
		"crd": html(append(policyOf("crd", `  mutations:
  - patchType: ApplyConfiguration
    applyConfiguration: {expression: "Object{spec: Object.spec{sizee: 1}}"}
`), text{"crd.yaml", crd}), "apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: w}\nspec: {size: a}\n"),
		"request": {
			Documents: good().Documents, Objects: good().Objects, Unbound: true, Namespace: script, Kubernetes: script, Operation: script, Subresource: script,
			User: &user{Username: script, Groups: []string{script}},
		},
		"prototype": html([]text{{"__proto__", values[0].Text}, {"constructor", "a: 1"}}, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\n__proto__: {polluted: 1}\ndata: {__proto__: a, constructor: b}\n"),
	}
}

var paneNames = []string{"result", "diff", "trace", "whynot", "orders", "lint", "migrate"}

// Texts of a link are texts in every pane.
func TestHostileTexts(t *testing.T) {
	for name, q := range hostile() {
		t.Run(name, func(t *testing.T) {
			b := newTab(t)
			b.open(playside + fragment(q))
			b.until("an answer or a failure", `["idle", "failed"].includes(document.body.dataset.state)`)
			for _, pane := range paneNames {
				b.click("#tab-" + pane)
				b.until(pane, js(`s => !document.querySelector(s).hidden && document.querySelector(s).innerText.trim() !== ""`, "#pane-"+pane))
				b.unharmed()
			}
		})
	}
	t.Run("__proto__ in the state", func(t *testing.T) {
		b := newTab(t)
		b.open(playside + raw(`{"documents": [], "objects": [], "__proto__": {"polluted": 1}, "constructor": {"prototype": {"polluted": 1}}}`))
		b.until("an answer or a failure", `["idle", "failed"].includes(document.body.dataset.state)`)
		b.unharmed()
	})
}

// The policy of the page is there and works: it refuses what a hostile text would do if
// it became part of the page.
func TestContentSecurityPolicy(t *testing.T) {
	for name, base := range map[string]string{"playground": playside, "static host": foreign} {
		t.Run(name, func(t *testing.T) {
			b := newTab(t)
			b.open(base)
			b.until("the page", `document.body.dataset.state`)
			b.expect("Content Security Policy", "refused", "Trusted")
			for what, attempt := range map[string]string{
				"a script in the page":      `s => { const e = document.createElement("script"); e.append("globalThis.pwned = 1"); document.body.append(e) }`,
				"a handler in an attribute": `s => { const e = document.createElement("button"); e.setAttribute("onclick", "globalThis.pwned = 1"); document.body.append(e); e.click() }`,
				"a style in an attribute":   `s => { const e = document.createElement("p"); e.setAttribute("style", "color: rgb(1, 2, 3)"); document.body.append(e); if (getComputedStyle(e).color === "rgb(1, 2, 3)") globalThis.pwned = 1 }`,
				"a style in the page":       `s => { const e = document.createElement("style"); e.textContent = "body { --canary: 1 }"; document.head.append(e); if (getComputedStyle(document.body).getPropertyValue("--canary")) globalThis.pwned = 1 }`,
				"HTML as text":              `s => { document.body.innerHTML = s; globalThis.pwned = 1 }`,
				"a worker of another host":  `s => { new Worker("http://evil.test/x.js"); globalThis.pwned = 1 }`,
				"a worker of a text":        `s => { new Worker("data:text/javascript,1"); globalThis.pwned = 1 }`,
				"a worker of this host":     `s => { new Worker("worker.js"); globalThis.pwned = 1 }`,
				"a policy of another name":  `s => { trustedTypes.createPolicy("other", {createScriptURL: u => u}); globalThis.pwned = 1 }`,
				"the policy's name again":   `s => { trustedTypes.createPolicy("mapd", {createScriptURL: u => u}); globalThis.pwned = 1 }`,
				"an image of another host":  `s => new Promise(r => { const e = new Image(); e.onload = () => { globalThis.pwned = 1; r() }; e.onerror = () => r(); e.src = "http://evil.test/i" })`,
				"a request to another host": `s => fetch("http://evil.test/f").then(() => { globalThis.pwned = 1 })`,
				"another base":              `s => { const e = document.createElement("base"); e.href = "http://evil.test/"; document.head.append(e); if (document.baseURI.includes("evil")) globalThis.pwned = 1 }`,
				"a frame":                   `s => { const e = document.createElement("iframe"); e.src = "http://evil.test/frame"; document.body.append(e) }`,
				"an eval":                   `s => new Promise(r => { setTimeout("globalThis.pwned = 1"); setTimeout(r) })`,
			} {
				t.Run(what, func(t *testing.T) {
					before := eval[int](b, "violations.length")
					eval[string](b, js(`async s => { try { await (`+attempt+`)(s) } catch (e) { return String(e) } return "" }`, script))
					if eval[bool](b, `"pwned" in globalThis`) {
						t.Errorf("it took effect")
						eval[bool](b, "delete globalThis.pwned")
					}
					b.until("a report", fmt.Sprintf("violations.length > %d", before))
				})
			}
			if hosts := reached.by("evil.test"); len(hosts) > 0 {
				t.Errorf("the page asked %v", hosts)
			}
		})
	}
}
