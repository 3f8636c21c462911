package benchmark

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/mapd-project/mapd/pkg/engine"
	"github.com/mapd-project/mapd/pkg/webhook"
)

// parts measure how the time of a request is divided over its stages. They are measured
// separately from figures, so that they do not slow these down.
type parts struct {
	sums     map[partID]*Part // over the requests
	requests int
}

type partID struct{ kind, name string }

func newParts() *parts { return &parts{sums: map[partID]*Part{}} }

// turns is how often the parts of a request are measured. The result is the median, because on a
// busy machine the mean includes interruptions.
const turns = 9

// measure runs a request stage by stage.
func (p *parts) measure(ctx context.Context, e *engine.Engine, r *Request, all limit) error {
	var each [turns]*parts
	for i := range each {
		each[i] = newParts()
		if err := each[i].turn(ctx, e, r, all.part(turns)); err != nil {
			return err
		}
	}
	slices.SortFunc(each[:], func(a, b *parts) int { return cmp.Compare(a.total(), b.total()) })
	median := each[turns/2]
	for id, part := range median.sums {
		sum := p.at(id)
		sum.Time += part.Time / float64(median.requests)
		sum.Cost += part.Cost / float64(median.requests)
	}
	p.requests++
	return nil
}

func (p *parts) turn(ctx context.Context, e *engine.Engine, r *Request, l limit) error {
	for begun := time.Now(); l.more(p.requests, time.Since(begun)); p.requests++ {
		start := time.Now()
		req, err := webhook.DecodeReview(r.Body)
		if err != nil {
			return err
		}
		decoded := time.Now()
		d := e.Admit(ctx, req)
		admitted := time.Now()
		if _, err := webhook.EncodeResponse(req, d); err != nil {
			return err
		}
		p.add(partID{Encode, ""}, time.Since(admitted), 0)
		p.add(partID{Decode, ""}, decoded.Sub(start), 0)
		p.add(partID{Match, ""}, admitted.Sub(decoded)-p.steps(d), 0)
	}
	return nil
}

// total returns the mean time of a request.
func (p *parts) total() float64 {
	var sum float64
	for _, part := range p.sums {
		sum += part.Time
	}
	return sum / float64(p.requests)
}

// steps adds the times of the steps of a decision and returns their sum.
func (p *parts) steps(d *engine.Decision) time.Duration {
	var sum time.Duration
	for _, s := range d.Steps {
		took := s.Duration + s.ConditionTime
		p.add(partID{d.Stage(s.Stage).Stage.Member, s.Policy}, took, s.Cost+s.ConditionCost)
		sum += took
	}
	return sum
}

func (p *parts) add(id partID, d time.Duration, cost int64) {
	part := p.at(id)
	part.Time += float64(d)
	part.Cost += float64(cost)
}

func (p *parts) at(id partID) *Part {
	if p.sums[id] == nil {
		p.sums[id] = &Part{Kind: id.kind, Name: id.name}
	}
	return p.sums[id]
}

// order is the order of the stages of a request.
var order = []string{Decode, Match, Policy, Mutator, Encode}

// list returns the means over all requests, in the order of the stages, with
// the costliest policy first.
func (p *parts) list() []Part {
	total := p.total()
	list := make([]Part, 0, len(p.sums))
	for _, part := range p.sums {
		part.Time /= float64(p.requests)
		part.Cost /= float64(p.requests)
		if total > 0 {
			part.Percent = 100 * part.Time / total
		}
		list = append(list, *part)
	}
	slices.SortFunc(list, func(a, b Part) int {
		return cmp.Or(cmp.Compare(slices.Index(order, a.Kind), slices.Index(order, b.Kind)), cmp.Compare(b.Time, a.Time), cmp.Compare(a.Name, b.Name))
	})
	return list
}
