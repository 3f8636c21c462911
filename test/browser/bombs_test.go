package browser

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/systeminfo"
	"github.com/chromedp/chromedp"
)

const policyHead = `apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: bomb}
spec:
  reinvocationPolicy: Never
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], operations: ["*"], resources: [pods]}
`

const labelMutation = `  mutations:
  - patchType: ApplyConfiguration
    applyConfiguration: {expression: "Object{metadata: Object.metadata{labels: {'a': 'b'}}}"}
`

const pod = `apiVersion: v1
kind: Pod
metadata: {name: web}
spec: {containers: [{name: app, image: nginx}]}
`

func policyOf(name, body string) []text {
	return []text{{"policy.yaml", strings.Replace(policyHead, "bomb", name, 1) + body}}
}

// good is a question with a small answer, to ask after a bad one.
func good() state {
	return state{Documents: policyOf("good", labelMutation), Objects: []text{{"pod.yaml", pod}}, Unbound: true}
}

// another is good with an object, and so an answer, of its own: one that is on the page already
// says nothing about what was asked since.
func another(round int) state {
	q := good()
	q.Objects[0].Text = strings.Replace(pod, "name: web", fmt.Sprintf("name: web-%d", round), 1)
	return q
}

// loops nests comprehensions over lists of ten: 10^depth steps.
func loops(depth int) string {
	var b strings.Builder
	for i := range depth {
		fmt.Fprintf(&b, "[0,1,2,3,4,5,6,7,8,9].all(v%d, ", i)
	}
	return b.String() + "true" + strings.Repeat(")", depth)
}

func bombs() map[string]state {
	at := func(documents []text, object string) state {
		return state{Documents: documents, Objects: []text{{"pod.yaml", object}}, Unbound: true}
	}
	var variables strings.Builder
	variables.WriteString("  variables:\n")
	for i := range 1000 {
		before := "1"
		if i > 0 {
			before = fmt.Sprintf("variables.v%d + 1", i-1)
		}
		fmt.Fprintf(&variables, "  - {name: v%d, expression: \"%s\"}\n", i, before)
	}
	deep := strings.Repeat("{a: ", 20_000) + "1" + strings.Repeat("}", 20_000)
	var alias strings.Builder
	alias.WriteString("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n")
	for i := range 12 {
		fmt.Fprintf(&alias, "a%d: &a%d [*a%d, *a%d, *a%d, *a%d, *a%d, *a%d, *a%d, *a%d, *a%d, *a%d]\n", i+1, i+1, i, i, i, i, i, i, i, i, i, i)
	}
	return map[string]state{
		"loops in a condition": at(policyOf("bomb", "  matchConditions:\n  - {name: loops, expression: \""+loops(12)+"\"}\n"+labelMutation), pod),
		"a string that doubles": at(policyOf("bomb", "  variables:\n  - {name: v, expression: \"[0,1,2,3,4,5,6,7,8,9].map(a, [0,1,2,3,4,5,6,7,8,9].map(b, [0,1,2,3,4,5,6,7,8,9].map(c, [0,1,2,3,4,5,6,7,8,9].map(d, [0,1,2,3,4,5,6,7,8,9].map(e, [0,1,2,3,4,5,6,7,8,9].map(f, object))))))\"}\n"+
			"  mutations:\n  - patchType: JSONPatch\n    jsonPatch: {expression: \"[JSONPatch{op: 'add', path: '/metadata/labels', value: {'n': string(variables.v.size())}}]\"}\n"), pod),
		"1,000 variables": at(policyOf("bomb", variables.String()+`  mutations:
  - patchType: ApplyConfiguration
    applyConfiguration: {expression: "Object{metadata: Object.metadata{labels: {'a': string(variables.v999)}}}"}
`), pod),
		"a deep object":     at(good().Documents, pod+"x: "+deep+"\n"),
		"a deep policy":     at([]text{{"policy.yaml", policyHead + "x: " + deep + "\n"}}, pod),
		"aliases, object":   at(good().Documents, pod+alias.String()),
		"aliases, policy":   at([]text{{"policy.yaml", policyHead + alias.String()}}, pod),
		"a long expression": at(policyOf("bomb", "  matchConditions:\n  - {name: long, expression: \""+strings.Repeat("1 + ", 40_000)+"1 == 0\"}\n"+labelMutation), pod),
		"many parentheses":  at(policyOf("bomb", "  matchConditions:\n  - {name: deep, expression: \""+strings.Repeat("(", 20_000)+"true"+strings.Repeat(")", 20_000)+"\"}\n"+labelMutation), pod),
	}
}

// While the engine works on the worst that a link can carry, the page answers the
// mouse; after it, a good question gets its answer.
func TestBombs(t *testing.T) {
	b := openTab(t, playside+fragment(good()))
	round := 0
	for name, bomb := range bombs() {
		round++
		t.Run(name, func(t *testing.T) {
			b := b.in(t)
			q := another(round)
			want := asked(t, q)
			b.open(playside + fragment(bomb))
			b.answersClicks()
			b.open(playside + fragment(q))
			b.stores(want)
			b.holds()
		})
	}
}

// A paste of 5 MB into each kind of editor.
func TestLargePaste(t *testing.T) {
	b := openTab(t, playside+fragment(good()))
	round := 0
	line := "  # " + strings.Repeat("x", 95) + "\n"
	for name, paste := range map[string]struct{ editor, text string }{
		"policy":     {documentEditor, policyHead + strings.Repeat(line, 50_000) + labelMutation},
		"object":     {objectEditor, pod + strings.Repeat(line, 50_000)},
		"one string": {objectEditor, pod + "data: " + strings.Repeat("x", 5_000_000)},
	} {
		round++
		t.Run(name, func(t *testing.T) {
			b := b.in(t)
			q := another(round)
			want := asked(t, q)
			b.write(paste.editor, paste.text)
			b.answersClicks()
			b.open(playside + fragment(q))
			b.stores(want)
			b.holds()
		})
	}
}

// answersClicks asserts that the page does something for a click, whatever the engine
// is at.
func (b *tab) answersClicks() {
	b.t.Helper()
	theme := func() string {
		return eval[string](b, `document.documentElement.dataset.theme ?? "" + getComputedStyle(document.body).backgroundColor`)
	}
	before := theme()
	b.click("#theme")
	b.poll("another theme", func() (string, bool) { return "it is still " + before, theme() != before })
}

// holds asserts that the process of the page has not grown without bounds: a program
// has at most 1 GiB, and there are two of them.
func (b *tab) holds() {
	b.t.Helper()
	const limit = 3 << 30
	rss := b.rss()
	b.t.Logf("%d MiB", rss>>20)
	if rss > limit {
		b.t.Errorf("the largest process of the browser has %d MiB, more than %d", rss>>20, limit>>20)
	}
}

// rss returns the resident memory of the largest process of the browser that renders.
func (b *tab) rss() int64 {
	b.t.Helper()
	ctx := chromium
	info, err := chromedp.CallBrowser(ctx, systeminfo.GetProcessInfo, cdp.Empty{})
	if err != nil {
		b.t.Fatal(err)
	}
	var largest int64
	for _, p := range info.ProcessInfo {
		if p.Type != "renderer" {
			continue
		}
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.ID))
		if err != nil {
			continue // it has ended
		}
		for line := range strings.Lines(string(status)) {
			if value, ok := strings.CutPrefix(line, "VmRSS:"); ok {
				kib := must(strconv.ParseInt(strings.Fields(value)[0], 10, 64))
				largest = max(largest, kib<<10)
			}
		}
	}
	if largest == 0 {
		b.t.Fatal("no process that renders")
	}
	return largest
}
