package report

import (
	"fmt"
	"strconv"
	"strings"
)

// Lookup returns the value that a path of a Change leads to, or false if the object has
// none: names with dots between them, and in brackets the index of a list's element, its
// key (containers[name=app]) or a name with dots (labels[example.com/team]). The error
// says that the path is no path.
func Lookup(obj any, path string) (v any, found bool, err error) {
	steps, err := stepsOf(path)
	if err != nil {
		return nil, false, err
	}
	for _, step := range steps {
		switch at := obj.(type) {
		case map[string]any:
			if obj, found = at[step]; !found {
				return nil, false, nil
			}
		case []any:
			if obj, found = elementOf(at, step); !found {
				return nil, false, nil
			}
		default:
			return nil, false, nil
		}
	}
	return obj, true, nil
}

// stepsOf splits a path.
func stepsOf(path string) (steps []string, err error) {
	rest := path
	for rest != "" {
		var step string
		switch {
		case rest[0] == '[':
			end := strings.IndexByte(rest, ']')
			if end < 0 {
				return nil, fmt.Errorf("%s: a bracket is open at the end", path)
			}
			step, rest = rest[1:end], rest[end+1:]
		default:
			end := strings.IndexAny(rest, ".[")
			if end < 0 {
				end = len(rest)
			}
			step, rest = rest[:end], rest[end:]
		}
		if step == "" {
			return nil, fmt.Errorf("%q: a name is missing in the path", path)
		}
		steps = append(steps, step)
		if dot, ok := strings.CutPrefix(rest, "."); ok {
			if rest = dot; rest == "" || rest[0] == '.' || rest[0] == '[' {
				return nil, fmt.Errorf("%q: a name is missing in the path", path)
			}
		} else if rest != "" && rest[0] != '[' {
			return nil, fmt.Errorf("%q: want a dot or a bracket before %q", path, rest)
		}
	}
	if len(steps) == 0 {
		return nil, fmt.Errorf("the path is empty")
	}
	return steps, nil
}

// elementOf returns the element that an index or keys call by name.
func elementOf(list []any, step string) (any, bool) {
	if i, err := strconv.Atoi(step); err == nil {
		if i < 0 || i >= len(list) {
			return nil, false
		}
		return list[i], true
	}
	for _, e := range list {
		m, ok := e.(map[string]any)
		for pair := range strings.SplitSeq(step, ",") {
			k, want, isPair := strings.Cut(pair, "=")
			v, there := m[k]
			ok = ok && isPair && there && fmt.Sprint(v) == want
		}
		if ok {
			return e, true
		}
	}
	return nil, false
}
