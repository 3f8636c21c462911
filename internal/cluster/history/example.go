package history

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/mapd-project/mapd/pkg/engine"
	"github.com/mapd-project/mapd/pkg/policy"
)

const (
	// exampleEvery is how long an example stays at least.
	exampleEvery = time.Second
	// maxFields is how many fields an example has, and maxExample how many bytes its
	// text is long about.
	maxFields  = 8
	maxExample = 512
)

// Example is an object that a policy changed or would change.
type Example struct {
	Time      time.Time `json:"time"`
	Group     string    `json:"group,omitempty"`
	Kind      string    `json:"kind"`
	Namespace string    `json:"namespace,omitempty"`
	// Name ends with "-" if the server chose the rest of it afterwards.
	Name string `json:"name,omitempty"`
	// Fields are the JSON pointers of what changed; More is how many are left out.
	Fields []string `json:"fields,omitempty"`
	More   int      `json:"more,omitempty"`
}

// example holds the last example of a pair as text, whose memory is used again.
type example struct {
	next atomic.Int64 // when there may be another one
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

// nameOf returns the name of the object, or the beginning that the client gave.
func nameOf(req *policy.Request) string {
	if req.Name == "" && req.Object != nil {
		if name := req.Object.GetName(); name != "" {
			return name
		}
		return req.Object.GetGenerateName()
	}
	return req.Name
}
