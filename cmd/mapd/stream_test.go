package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/mapd-project/mapd/test/hammer"
)

const streamPolicy = `apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: edit}
spec:
  reinvocationPolicy: Never
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}
  mutations:
  - patchType: ApplyConfiguration
    applyConfiguration:
      expression: 'Object{metadata: Object.metadata{labels: {"team": "x"}}}'
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: edit}
spec: {policyName: edit}
`

// documents is a stream that is made as it is read. After each thousand it looks
// at the heap.
type documents struct {
	n, total int
	left     []byte
	heap     func(n int)
}

func (d *documents) Read(p []byte) (int, error) {
	if len(d.left) == 0 {
		if d.n == d.total {
			return 0, io.EOF
		}
		if d.n%(d.total/10) == 0 {
			d.heap(d.n)
		}
		d.left = fmt.Appendf(nil, "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: c%d\ndata:\n  text: |\n    %s\n---\n", d.n, bytes.Repeat([]byte("x"), 4<<10))
		d.n++
	}
	n := copy(p, d.left)
	d.left = d.left[n:]
	return n, nil
}

// counter counts documents and forgets them.
type counter struct{ documents int }

func (c *counter) Write(p []byte) (int, error) {
	c.documents += bytes.Count(p, []byte("kind: ConfigMap"))
	return len(p), nil
}

// 5,000 documents of 4 KiB are 20 MiB; what is live after each tenth of them must
// not grow with the text in between.
func TestEvalRunsInConstantMemory(t *testing.T) {
	hammer.Alone(t)
	policies := filepath.Join(t.TempDir(), "p.yaml")
	if err := os.WriteFile(policies, []byte(streamPolicy), 0o644); err != nil {
		t.Fatal(err)
	}
	var live []uint64
	in := &documents{total: 5000, heap: func(int) {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		live = append(live, m.HeapAlloc)
	}}
	var out counter
	if code := run([]string{"eval", "-p", policies, "-f", "-"}, in, &out, io.Discard); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	if out.documents != in.total {
		t.Errorf("%d documents came out", out.documents)
	}
	// The first tenths open schemas and fill pools.
	first, last := live[2], live[len(live)-1]
	if last > first+4<<20 {
		t.Errorf("the heap grew from %d to %d bytes: %d", first, last, live)
	}
}

// The progress line is for terminals; a pipe gets words only.
func TestProgressIsForTerminals(t *testing.T) {
	var b bytes.Buffer
	n := newNotes(&b)
	for range 10 {
		n.count()
	}
	n.say("done\n")
	if b.String() != "done\n" {
		t.Errorf("got %q", b.String())
	}

	b.Reset()
	n = newNotes(&b)
	n.terminal = true
	n.count()
	n.say("done\n")
	n.done()
	if want := "\r\x1b[Kobjects done: 0\r\x1b[Kdone\n"; b.String() != want {
		t.Errorf("got %q, want %q", b.String(), want)
	}
}
