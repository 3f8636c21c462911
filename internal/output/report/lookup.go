package report

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/mapd-project/mapd/pkg/tree"
)

// Lookup returns the value that a path of a Change leads to, or false if the object has
// none: names with dots between them, and in brackets the index of a list's element, its
// key (containers[name=app]) or a name with dots (labels[example.com/team]). The error
// says that the path is no path.
func Lookup(obj any, path string) (v any, found bool, err error) {
	steps, err := tree.SplitField(path)
	if err != nil {
		return nil, false, err
	}
	for _, step := range steps {
		switch at := obj.(type) {
		case map[string]any:
			if obj, found = at[step.Name]; !found {
				return nil, false, nil
			}
		case []any:
			if obj, found = elementOf(at, step.Name); !found {
				return nil, false, nil
			}
		default:
			return nil, false, nil
		}
	}
	return obj, true, nil
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
