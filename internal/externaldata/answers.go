package externaldata

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"sigs.k8s.io/yaml"

	"github.com/mapd-project/mapd/pkg/engine"
)

// Answers are recorded answers of providers. They do not change.
type Answers struct {
	file string // for errors
	of   map[string]map[string]recorded
}

// recorded is a value, or the text of an error: a string or {error: string}.
type recorded struct {
	Value string
	Error string // not empty: there is no value
}

func (r *recorded) UnmarshalJSON(data []byte) error {
	if data[0] == '"' {
		return json.Unmarshal(data, &r.Value)
	}
	failure := struct {
		Error *string `json:"error"`
	}{}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&failure); err != nil || failure.Error == nil || strings.TrimSpace(*failure.Error) == "" {
		return errors.New("expected a string, or {error: TEXT}")
	}
	r.Error = *failure.Error
	return nil
}

func (r recorded) MarshalJSON() ([]byte, error) {
	if r.Error != "" {
		return json.Marshal(map[string]string{"error": r.Error})
	}
	return json.Marshal(r.Value)
}

// ReadAnswers reads recorded answers, YAML or JSON: a map of providers, each a map of
// keys, each a string or {error: TEXT}. Errors name the file.
func ReadAnswers(file string, data []byte) (*Answers, error) {
	fail := func(format string, args ...any) (*Answers, error) {
		return nil, fmt.Errorf("%s: recorded answers: %w", file, fmt.Errorf(format, args...))
	}
	data, err := yaml.YAMLToJSONStrict(data)
	if err != nil {
		return fail("%w", err)
	}
	var providers map[string]json.RawMessage
	if err := json.Unmarshal(data, &providers); err != nil {
		return fail("expected a map of providers to keys to answers")
	}
	a := &Answers{file: file, of: map[string]map[string]recorded{}}
	for _, provider := range slices.Sorted(maps.Keys(providers)) {
		var keys map[string]json.RawMessage
		if err := json.Unmarshal(providers[provider], &keys); err != nil {
			return fail("provider %s: expected a map of keys to answers", provider)
		}
		answers := make(map[string]recorded, len(keys))
		for _, key := range slices.Sorted(maps.Keys(keys)) {
			var r recorded
			if err := json.Unmarshal(keys[key], &r); err != nil {
				return fail("provider %s: key %q: %w", provider, key, err)
			}
			answers[key] = r
		}
		a.of[provider] = answers
	}
	return a, nil
}

// Values returns the values by provider and key, without errors.
func (a *Answers) Values() map[string]map[string]string {
	out := map[string]map[string]string{}
	for provider, keys := range a.of {
		out[provider] = map[string]string{}
		for key, r := range keys {
			if r.Error == "" {
				out[provider][key] = r.Value
			}
		}
	}
	return out
}

// Keys returns the keys, those of errors included, sorted, by provider.
func (a *Answers) Keys() map[string][]string {
	out := map[string][]string{}
	for provider, keys := range a.of {
		out[provider] = slices.Sorted(maps.Keys(keys))
	}
	return out
}

// get returns the recorded answer to a question.
func (a *Answers) get(q engine.Question) (answer engine.Answer, ok bool) {
	r, ok := a.of[q.Source][q.Key]
	switch {
	case !ok:
		return engine.Answer{}, false
	case r.Error != "":
		return engine.Answer{Err: &Error{q.Source, Key, r.Error}}, true
	}
	return engine.Answer{Value: r.Value}, true
}

// Resolve implements engine.Resolver. What is not recorded is an error.
func (a *Answers) Resolve(_ context.Context, questions []engine.Question, _ bool) []engine.Answer {
	out := make([]engine.Answer, len(questions))
	for i, q := range questions {
		answer, ok := a.get(q)
		if !ok {
			answer.Err = failed(q.Source, Recorded, "%s has no answer for the key %q", a.file, q.Key)
		}
		out[i] = answer
	}
	return out
}

// Offline is a Resolver that answers nothing, and says how to change that.
type Offline string

// Resolve implements engine.Resolver.
func (o Offline) Resolve(_ context.Context, questions []engine.Question, _ bool) []engine.Answer {
	out := make([]engine.Answer, len(questions))
	for i, q := range questions {
		out[i].Err = failed(q.Source, Recorded, "not asked for the key %q: %s", q.Key, string(o))
	}
	return out
}

// Recorder remembers the answers of another Resolver, except for calls that failed. It is safe
// for concurrent use.
type Recorder struct {
	// From answers what Known has no value for. Known may be nil. An error of Known stands if
	// the call fails.
	From  engine.Resolver
	Known *Answers

	mu sync.Mutex
	of map[string]map[string]recorded
}

// Resolve implements engine.Resolver.
func (r *Recorder) Resolve(ctx context.Context, questions []engine.Question, dryRun bool) []engine.Answer {
	out := make([]engine.Answer, len(questions))
	var ask []engine.Question
	var at []int
	for i, q := range questions {
		if r.Known != nil {
			if answer, ok := r.Known.get(q); ok {
				out[i] = answer
				if answer.Err == nil {
					continue
				}
			}
		}
		ask, at = append(ask, q), append(at, i)
	}
	if len(ask) > 0 {
		for i, answer := range r.From.Resolve(ctx, ask, dryRun) {
			if known := out[at[i]]; known.Err == nil || answered(answer.Err) {
				out[at[i]] = answer
			}
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, q := range questions {
		if answered(out[i].Err) {
			r.keep(q, out[i])
		}
	}
	return out
}

func (r *Recorder) keep(q engine.Question, answer engine.Answer) {
	if r.of == nil {
		r.of = map[string]map[string]recorded{}
	}
	if r.of[q.Source] == nil {
		r.of[q.Source] = map[string]recorded{}
	}
	record := recorded{Value: answer.Value}
	if answer.Err != nil {
		record = recorded{Error: answer.Err.Error()}
		var e *Error
		if errors.As(answer.Err, &e) { // the name is added when the file is read
			record.Error = e.Text
		}
	}
	r.of[q.Source][q.Key] = record
}

// File returns what was recorded, and the answers of Known that nobody asked for, as
// a text that ReadAnswers reads.
func (r *Recorder) File() ([]byte, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := map[string]map[string]recorded{}
	add := func(of map[string]map[string]recorded) {
		for provider, keys := range of {
			if all[provider] == nil {
				all[provider] = map[string]recorded{}
			}
			maps.Copy(all[provider], keys)
		}
	}
	if r.Known != nil {
		add(r.Known.of)
	}
	add(r.of)
	return yaml.Marshal(all)
}
