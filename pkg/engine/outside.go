package engine

import (
	"context"
	"errors"
	"fmt"
)

// maxCalls bounds the calls of externalData in one request.
const maxCalls = 8

// External implements cel.Outside for the expressions of policies. It asks the same question
// only once for a request.
func (a *Admission) External(_ context.Context, provider string, keys []string) (map[string]string, error) {
	var ask []Question
	for _, key := range keys {
		q := Question{provider, key}
		if _, known := a.known[q]; !known {
			ask = append(ask, q)
		}
	}
	if len(ask) > 0 {
		if a.asks++; a.asks > maxCalls {
			return nil, fmt.Errorf("the policies of one request ask more than %d times: ask for all keys at once", maxCalls)
		}
		if a.known == nil {
			a.known = map[Question]Answer{}
		}
		for i, answer := range a.Ask(ask) {
			a.known[ask[i]] = answer
		}
	}
	values := make(map[string]string, len(keys))
	for _, key := range keys {
		answer := a.known[Question{provider, key}]
		if answer.Err == nil {
			values[key] = answer.Value
		} else if !isMissing(answer.Err) {
			return nil, answer.Err
		}
	}
	return values, nil
}

// isMissing reports whether an error says that the source answered and has no value for the
// key.
func isMissing(err error) bool {
	var missing interface{ IsMissing() bool }
	return errors.As(err, &missing) && missing.IsMissing()
}
