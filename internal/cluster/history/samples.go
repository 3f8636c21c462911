package history

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mapd-project/mapd/internal/output/report"
	"github.com/mapd-project/mapd/pkg/engine"
	"github.com/mapd-project/mapd/pkg/policy"
)

// Bounds of samples, which together bound their memory.
const (
	// maxSamples bounds the samples of all pairs, and pairSamples those of one pair.
	maxSamples  = 2_000
	pairSamples = 8
	// maxSample bounds the changes of a sample, and maxValue one value, in bytes of JSON.
	maxSample = 8 << 10
	maxValue  = 1 << 10
	// sampleEvery is the minimum time until a sample of a pair that has all its samples is
	// replaced.
	sampleEvery = time.Second
	// maxSampleAnswer bounds the samples in one answer.
	maxSampleAnswer = 200
)

// Sample is one object that a policy in shadow or warn would have changed.
type Sample struct {
	Pair
	Time      time.Time `json:"time"`
	Mode      string    `json:"mode"`
	Param     string    `json:"param,omitempty"`
	Operation string    `json:"operation"`
	Group     string    `json:"group,omitempty"`
	Kind      string    `json:"kind"`
	Namespace string    `json:"namespace,omitempty"`
	Name      string    `json:"name,omitempty"`
	// Changes is a JSON list of Change. The values of Secrets are masked.
	Changes json.RawMessage `json:"changes"`
	// More is the number of changes left out.
	More int `json:"more,omitempty"`
}

// Change is a report.Change in JSON.
type Change struct {
	Path   string `json:"path"`
	Before any    `json:"before,omitempty"`
	After  any    `json:"after,omitempty"`
	Moved  bool   `json:"moved,omitempty"`
}

// samples has the samples of all pairs, oldest first.
type samples struct {
	mu   sync.Mutex
	all  []*Sample
	full map[Pair]time.Time // when the next sample of a pair may be taken, if there is no room for another one
}

// add adds a sample of what a policy in shadow or warn would have changed, unless the last sample
// of the pair is too recent.
func (s *samples) add(req *policy.Request, shadow *engine.Shadow) {
	p, now := Pair{shadow.Policy, shadow.Binding}, time.Now()
	s.mu.Lock()
	next, full := s.full[p]
	if full && now.Before(next) {
		s.mu.Unlock()
		return
	}
	s.full[p] = now.Add(sampleEvery) // so that no concurrent call begins another sample
	s.mu.Unlock()

	sample := &Sample{
		Pair: p, Time: now.UTC().Truncate(time.Millisecond), Mode: shadow.Mode.String(), Param: clip(shadow.Param), Operation: clip(string(req.Operation)),
		Group: clip(req.Kind.Group), Kind: clip(req.Kind.Kind), Namespace: clip(req.Namespace), Name: clip(nameOf(req)),
	}
	sample.Changes, sample.More = changes(req, shadow)
	s.mu.Lock()
	defer s.mu.Unlock()
	of := 0
	for i := len(s.all) - 1; i >= 0; i-- {
		if s.all[i].Pair == p {
			if of++; of == pairSamples {
				s.all = slices.Delete(s.all, i, i+1)
				of--
				break
			}
		}
	}
	if of < pairSamples-1 && len(s.all) < maxSamples || len(s.full) > maxPairs {
		delete(s.full, p)
	}
	if len(s.all) >= maxSamples {
		s.all = slices.Delete(s.all, 0, 1)
	}
	s.all = append(s.all, sample)
}

// clip returns a copy of s of at most maxText bytes.
func clip(s string) string {
	if len(s) > maxText {
		s = s[:maxText]
	}
	return strings.ToValidUTF8(strings.Clone(s), "\uFFFD")
}

// changes returns the differences as JSON, and the number of those left out.
func changes(req *policy.Request, shadow *engine.Shadow) (text json.RawMessage, more int) {
	var before, after map[string]any
	if shadow.Before != nil {
		before = shadow.Before.Object
	}
	if shadow.After != nil {
		after = shadow.After.Object
	}
	all := report.Hide(req.Kind.Group, req.Kind.Kind, report.Diff(before, after, nil))
	text = append(text, '[')
	for i, c := range all {
		one, err := json.Marshal(Change{clip(c.Path), short(c.Before), short(c.After), c.Moved})
		if err != nil || len(text)+len(one) > maxSample {
			more = len(all) - i
			break
		}
		if i > 0 {
			text = append(text, ',')
		}
		text = append(text, one...)
	}
	return append(text, ']'), more
}

// short returns v, or a text with its length if v is longer than maxValue.
func short(v any) any {
	if v == nil {
		return nil
	}
	text, err := json.Marshal(v)
	if err != nil || len(text) > maxValue {
		return fmt.Sprintf("(%d bytes are not shown)", len(text))
	}
	return json.RawMessage(text)
}

// of returns the samples of a policy, newest first, and the number of those left out.
func (s *samples) of(policyName string) (found []*Sample, more int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	found = []*Sample{}
	for _, sample := range slices.Backward(s.all) {
		if sample.Policy != policyName {
			continue
		}
		if len(found) < maxSampleAnswer {
			found = append(found, sample)
		} else {
			more++
		}
	}
	return found, more
}

func (s *samples) prune(keep func(policy, binding string) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = slices.DeleteFunc(s.all, func(sample *Sample) bool { return !keep(sample.Policy, sample.Binding) })
	for p := range s.full {
		if !keep(p.Policy, p.Binding) {
			delete(s.full, p)
		}
	}
}
