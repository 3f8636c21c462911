package cel

import (
	"reflect"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"k8s.io/apiserver/pkg/cel/mutation"

	"github.com/mapd-project/mapd/pkg/cel/quick"
)

// scale adds up the least possible size of values as JSON text, and stops at a limit. A shared
// part counts each time it occurs: a list of ten times the same list, eight levels deep, takes
// little memory and is a gigabyte of text.
type scale struct {
	left int64
	// a is charged for work each time that left falls below rests. If a is nil, work is not
	// counted.
	a     *Activation
	rests int64
}

// restEvery is how many bytes count as YieldEvery units of work.
const restEvery = 16 * YieldEvery

// scale returns a scale that stops at MaxResult, or when a has to stop.
func (a *Activation) scale() scale { return scale{MaxResult, a, MaxResult - restEvery} }

// weighs reports whether a result is within MaxResult. If it returns false, a.stop may have
// another reason.
func (a *Activation) weighs(v any) bool {
	s := a.scale()
	ok := s.data(v)
	a.size = MaxResult - s.left
	return ok
}

// weighsOps is weighs for the operations of a patch.
func (a *Activation) weighsOps(ops []PatchOp) bool {
	s := a.scale()
	ok := true
	for i := range ops {
		op := &ops[i]
		ok = ok && s.take(len(op.Path)+len(op.From)) && s.data(op.Value)
	}
	a.size = MaxResult - s.left
	return ok
}

// ResultSize estimates how many bytes the last result has as JSON.
func (a *Activation) ResultSize() int64 { return a.size }

// Outweighs reports whether JSON data has more bytes as text. Shared parts count each time they
// occur.
func Outweighs(data any, bytes int64) bool {
	s := scale{left: bytes}
	return !s.data(data)
}

// take subtracts bytes and reports whether the limit permits them.
func (s *scale) take(bytes int) bool {
	s.left -= int64(bytes)
	return s.left >= s.rests || s.rest()
}

// rest counts work and reports whether to go on.
func (s *scale) rest() bool {
	if s.left < 0 {
		return false
	}
	s.rests = max(s.left-restEvery, 0)
	s.a.work += YieldEvery
	if err := s.a.yield(); err != nil {
		s.a.stop = err
		return false
	}
	return true
}

// text adds the size of a string with its quotes.
func (s *scale) text(v string) bool { return s.take(len(v) + 2) }

// data adds the size of JSON data, which quick evaluations and conversions return.
func (s *scale) data(v any) bool {
	switch v := v.(type) {
	case string:
		return s.text(v)
	case map[string]any:
		return s.fields(v)
	case quick.Map:
		return s.fields(v)
	case []any:
		return s.elements(v)
	case quick.List:
		return s.elements(v)
	case []string:
		for _, e := range v {
			if !s.text(e) {
				return false
			}
		}
		return s.take(2)
	case []byte:
		return s.take(len(v))
	case ref.Val:
		return s.value(v)
	case []ref.Val:
		for _, e := range v {
			if !s.value(e) {
				return false
			}
		}
		return s.take(2 + len(v))
	case map[ref.Val]ref.Val:
		for k, e := range v {
			if !s.value(k) || !s.value(e) {
				return false
			}
		}
		return s.take(2 + len(v))
	}
	return s.take(1)
}

func (s *scale) fields(m map[string]any) bool {
	for k, v := range m {
		if !s.text(k) || !s.data(v) {
			return false
		}
	}
	return s.take(2 + len(m))
}

func (s *scale) elements(list []any) bool {
	for _, v := range list {
		if !s.data(v) {
			return false
		}
	}
	return s.take(2 + len(list))
}

// Lists and maps of cel-go whose Value is the data that they wrap. Others make their Value when
// it is called.
var (
	plainList = reflect.TypeOf(types.NewRefValList(types.DefaultTypeAdapter, nil))
	plainMap  = reflect.TypeOf(types.NewRefValMap(types.DefaultTypeAdapter, nil))
)

// value adds the size of a value of cel-go.
func (s *scale) value(v ref.Val) bool {
	switch v := v.(type) {
	case types.String:
		return s.text(string(v))
	case types.Bytes:
		return s.take(len(v))
	case types.Bool, types.Int, types.Uint, types.Double, types.Null, nil:
		return s.take(1)
	case *objectVal:
		for name, field := range v.fields {
			if !s.text(name) || !s.value(field) {
				return false
			}
		}
		return s.take(2)
	case *mutation.JSONPatchVal:
		return s.text(v.Op) && s.text(v.Path) && s.text(v.From) && (v.Val == nil || s.value(v.Val))
	case *types.Optional:
		return !v.HasValue() || s.value(v.GetValue())
	}
	if t := reflect.TypeOf(v); t == plainList || t == plainMap {
		return s.data(v.Value())
	}
	switch v := v.(type) {
	case traits.Lister:
		for it := v.Iterator(); it.HasNext() == types.True; {
			if !s.value(it.Next()) {
				return false
			}
		}
	case *variablesVal:
	case traits.Mapper:
		for it := v.Iterator(); it.HasNext() == types.True; {
			k := it.Next()
			e, _ := v.Find(k)
			if !s.value(k) || !s.value(e) {
				return false
			}
		}
	}
	return s.take(2)
}
