package engine

import (
	"fmt"
	"slices"
	"time"

	"github.com/mapd-project/mapd/pkg/api"
)

// Way is how a Resolver found an Answer.
type Way uint8

const (
	// Given answers needed no call: they are recorded ones, or errors of the Resolver itself.
	Given Way = iota
	// Called answers are those of a call that was made for them.
	Called
	// Cached answers are those of an earlier call.
	Cached
	// Shared answers are those of a call that another request had begun.
	Shared
)

// Asked describes what a stage asked one source, and how long that took.
type Asked struct {
	Source string `json:"source"`
	// Calls counts the calls that were made for this request.
	Calls int `json:"calls"`
	// Keys counts the questions. Cached and Shared count those that were answered in that Way,
	// and Failed those without a value.
	Keys   int `json:"keys"`
	Cached int `json:"cached"`
	Shared int `json:"shared"`
	Failed int `json:"failed"`
	// Time is how long the source took, as far as the request waited for it.
	Time time.Duration `json:"time"`
}

// String returns the fields that are not 0, such as "digests: 3 keys, 1 call, 1 failed, 2.5ms".
func (s Asked) String() string {
	text := fmt.Sprintf("%s: %d key", s.Source, s.Keys)
	if s.Keys != 1 {
		text += "s"
	}
	if s.Calls == 1 {
		text += ", 1 call"
	} else if s.Calls > 0 {
		text += fmt.Sprintf(", %d calls", s.Calls)
	}
	for i, n := range []int{s.Cached, s.Shared, s.Failed} {
		if n > 0 {
			text += fmt.Sprintf(", %d %s", n, [...]string{"cached", "shared", "failed"}[i])
		}
	}
	if s.Time > 0 {
		text += ", " + s.Time.Round(10*time.Microsecond).String()
	}
	return text
}

// Asked returns what all stages that are enforced asked, in their order.
func (d *Decision) Asked() []Asked {
	var all []Asked
	for i := range d.Stages {
		if d.Stages[i].Stage.Mode == api.Enforce {
			all = append(all, d.Stages[i].Asked...)
		}
	}
	return all
}

// count records the questions of one call of Ask. err is why none of the answers can be used.
// If there are no answers at all, each source is recorded with the duration of the call.
func (a *Admission) count(questions []Question, answers []Answer, err error, took time.Duration) {
	now := map[string]*Asked{}
	for i, q := range questions {
		s := now[q.Source]
		if s == nil {
			s = &Asked{Source: q.Source}
			now[q.Source] = s
		}
		answer := Answer{Took: took}
		if len(answers) > 0 {
			answer = answers[i]
		}
		s.Keys++
		if err != nil || answer.Err != nil {
			s.Failed++
		}
		switch answer.Way {
		case Called:
			s.Calls = 1
		case Cached:
			s.Cached++
		case Shared:
			s.Shared++
		}
		s.Time = max(s.Time, answer.Took)
	}
	for _, q := range questions {
		if s := now[q.Source]; s != nil {
			delete(now, q.Source)
			a.sources = addAsked(a.sources, *s)
		}
	}
}

func addAsked(all []Asked, s Asked) []Asked {
	i := slices.IndexFunc(all, func(t Asked) bool { return t.Source == s.Source })
	if i < 0 {
		return append(all, s)
	}
	t := &all[i]
	t.Calls, t.Keys, t.Cached, t.Shared, t.Failed = t.Calls+s.Calls, t.Keys+s.Keys, t.Cached+s.Cached, t.Shared+s.Shared, t.Failed+s.Failed
	t.Time += s.Time
	return all
}
