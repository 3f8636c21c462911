package engine

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Question asks a source outside of mapd, such as a provider of external data, for the value of
// a key.
type Question struct{ Source, Key string }

// Answer is the value that a source returned, or the error why it returned none. An Err with a
// method IsMissing() bool that returns true says that the source has no value for the key.
type Answer struct {
	Value string
	Err   error
	// Way and Took say how the answer was found, and how long that took.
	Way  Way
	Took time.Duration
}

// Resolver answers Questions. It must be safe for concurrent use.
type Resolver interface {
	// Resolve returns one Answer for each of the questions, which are all different,
	// in their order. It must return soon after ctx ends. If dryRun is set it must
	// have no side effects.
	Resolve(ctx context.Context, questions []Question, dryRun bool) []Answer
}

const (
	// maxAsking bounds the duration of one call of Admission.Ask, in addition to the deadline
	// of the request. Gatekeeper gives a provider at most 5 seconds.
	maxAsking = 5 * time.Second
	// maxAnswers bounds the bytes of all values that one call of Admission.Ask returns. An API
	// server stores objects of up to 1.5 MiB, and a source might return any amount.
	maxAnswers = 1 << 20
)

var errNoResolver = errors.New("nothing outside can be asked")

// Ask asks the Engine's Resolver. A stage collects all questions of one run through
// its members and asks them with one call, so that the Resolver can send one request
// to each source. Equal questions are asked once. The answers are in the order of
// questions; without a usable answer, Err is set. Their bytes are charged to the
// request's memory.
func (a *Admission) Ask(questions []Question) []Answer {
	at := make(map[Question]int, len(questions))
	var distinct []Question
	for _, q := range questions {
		if _, asked := at[q]; !asked {
			at[q] = len(distinct)
			distinct = append(distinct, q)
		}
	}
	began := time.Now()
	answers, err := a.resolve(distinct)
	a.count(distinct, answers, err, time.Since(began))
	out := make([]Answer, len(questions))
	for i, q := range questions {
		if err != nil {
			out[i].Err = err
		} else {
			out[i] = answers[at[q]]
		}
	}
	return out
}

// resolve returns one answer to each of the questions, or an error if the answers cannot be
// used.
func (a *Admission) resolve(questions []Question) (answers []Answer, err error) {
	resolver := a.options.Resolver
	switch {
	case len(questions) == 0:
		return nil, nil
	case resolver == nil:
		return nil, errNoResolver
	}
	ctx, cancel := context.WithTimeout(a.ctx, maxAsking)
	defer cancel()
	defer func() {
		if v := recover(); v != nil {
			answers, err = nil, fmt.Errorf("panic while asking outside: %s", PanicText(v))
		}
	}()
	answers = resolver.Resolve(ctx, questions, a.Request.DryRun)
	if n := len(answers); n != len(questions) {
		answers, err = nil, fmt.Errorf("%d answers to %d questions", n, len(questions))
	}
	if ctx.Err() != nil {
		err = fmt.Errorf("asking outside took too long: %w", context.Cause(ctx))
	}
	if err != nil {
		return answers, err
	}
	size := 0
	for i := range answers {
		size += len(answers[i].Value)
	}
	if size > maxAnswers {
		return answers, fmt.Errorf("the answers have %d bytes, more than %d", size, maxAnswers)
	}
	return answers, a.Request.Memory.Charge(int64(size))
}
