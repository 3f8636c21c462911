package history

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/mapd-project/mapd/pkg/engine"
	"github.com/mapd-project/mapd/pkg/policy"
)

const (
	// exampleEvery is the minimum time until an example is replaced.
	exampleEvery = time.Second
	// maxFields bounds the fields of an example, and maxExample roughly the bytes of its text.
	maxFields  = 8
	maxExample = 512
)

// Example is an object that a policy changed or would change.
type Example struct {
	Time      time.Time `json:"time"`
	Group     string    `json:"group,omitempty"`
	Kind      string    `json:"kind"`
	Namespace string    `json:"namespace,omitempty"`
	// Name ends with "-" if the server generated the rest after admission.
	Name string `json:"name,omitempty"`
	// Fields are the JSON pointers of the changed fields; More is the number of those left out.
	Fields []string `json:"fields,omitempty"`
	More   int      `json:"more,omitempty"`
}

// example holds the last example of a pair as text. It reuses its memory.
type example struct {
	next atomic.Int64 // when the example may be replaced
	mu   sync.Mutex
	text packed
}

func (e *example) set(req *policy.Request, s *engine.Step) {
	now := time.Now()
	next := e.next.Load()
	if now.UnixNano() < next || !e.next.CompareAndSwap(next, now.Add(exampleEvery).UnixNano()) {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.text = e.text[:0].number(now.UnixMilli()).string(req.Kind.Group).string(req.Kind.Kind).string(req.Namespace).string(nameOf(req)).paths(s.Paths(), maxFields, maxExample)
}

func (e *example) get() *Example {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.text) == 0 {
		return nil
	}
	r := reader{e.text}
	out := &Example{Time: r.time(), Group: r.string(), Kind: r.string(), Namespace: r.string(), Name: r.string()}
	out.Fields, out.More = r.paths()
	return out
}

// nameOf returns the name of the object, or its generateName.
func nameOf(req *policy.Request) string {
	if req.Name == "" && req.Object != nil {
		if name := req.Object.GetName(); name != "" {
			return name
		}
		return req.Object.GetGenerateName()
	}
	return req.Name
}
