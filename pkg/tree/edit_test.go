package tree

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/mapd-project/mapd/test/hammer"
)

// Random writes give what they give on a copy of everything, Undo gives back what
// was there at Begin, and nothing that an Edit was given or that was kept is
// modified.
func TestEditRandomly(t *testing.T) {
	hammer.Alone(t)
	for seed := range uint64(hammer.Count(600)) {
		editRandomly(t, seed, 24)
	}
}

func FuzzEdit(f *testing.F) {
	f.Add(uint64(1))
	f.Fuzz(func(t *testing.T, seed uint64) { editRandomly(t, seed, 60) })
}

func editRandomly(t *testing.T, seed uint64, writes int) {
	t.Helper()
	rnd := rand.New(rand.NewPCG(seed, 12))
	given := anyTree(rnd, 4)
	var e Edit
	e.Reset(given)
	held := []any{given}
	copies := []any{cloned(given)}
	hold := func(v any) { held, copies = append(held, v), append(copies, cloned(v)) }
	want := cloned(given)
	var begun any
	began := false
	for n := range writes {
		switch rnd.IntN(10) {
		case 0:
			e.Keep()
			hold(e.Root())
			begun = cloned(want)
		case 1:
			e.Begin()
			begun, began = cloned(want), true
		case 2:
			if began {
				e.Undo()
				want = cloned(begun)
			}
		default:
			value, part := randomValue(rnd, &e)
			hold(value)
			if rnd.IntN(3) == 0 {
				e.Begin()
				begun, began = cloned(want), true
			} else if part {
				e.Keep()
				begun = cloned(want)
			}
			want = randomWrite(rnd, &e, want, value)
		}
		if !Equal(e.Root(), want) {
			t.Fatalf("seed %d, write %d: %v, want %v", seed, n, e.Root(), want)
		}
		for i := range held {
			if !Equal(held[i], copies[i]) {
				t.Fatalf("seed %d, write %d: modified %v, which was %v", seed, n, held[i], copies[i])
			}
		}
	}
}

// randomValue makes a value to write, which may be or hold a part of the tree.
func randomValue(rnd *rand.Rand, e *Edit) (value any, part bool) {
	parts := containers(e.Root())
	if rnd.IntN(3) > 0 || len(parts) == 0 {
		return anyTree(rnd, 2), false
	}
	value = parts[rnd.IntN(len(parts))]
	if rnd.IntN(2) == 0 {
		value = map[string]any{"in": value}
	}
	e.Release(value)
	return value, true
}

// randomWrite does the same to an Edit and to a tree that shares nothing.
func randomWrite(rnd *rand.Rand, e *Edit, want, value any) any {
	if rnd.IntN(3) > 0 {
		e.Top()
	}
	for rnd.IntN(4) > 0 {
		token, child := randomChild(rnd, e.At())
		switch child.(type) {
		case map[string]any, []any:
			e.Down(token, child)
			continue
		}
		break
	}
	// The same place in the copy.
	set := func(v any) { want = v }
	at := want
	for _, s := range e.way[1:] {
		switch c := at.(type) {
		case map[string]any:
			at, set = c[s.token.Key], func(v any) { c[s.token.Key] = v }
		case []any:
			at, set = c[s.token.Index], func(v any) { c[s.token.Index] = v }
		}
	}
	token, _ := randomChild(rnd, e.At())
	switch c := at.(type) {
	case map[string]any:
		if rnd.IntN(3) == 0 {
			e.Delete(token)
			delete(c, token.Key)
			return want
		}
		e.Set(token, value)
		c[token.Key] = cloned(value)
	case []any:
		switch n := rnd.IntN(3); {
		case n == 0 && len(c) > 0:
			e.Delete(token)
			set(slices.Delete(slices.Clone(c), token.Index, token.Index+1))
		case n == 1 && len(c) > 0:
			e.Set(token, value)
			c[token.Index] = cloned(value)
		default:
			i := rnd.IntN(len(c) + 1)
			e.Insert(i, value)
			set(slices.Insert(slices.Clone(c), i, cloned(value)))
		}
	default:
		e.SetRoot(value)
		return cloned(value)
	}
	return want
}

func randomChild(rnd *rand.Rand, container any) (Token, any) {
	switch c := container.(type) {
	case map[string]any:
		key := string(rune('a' + rnd.IntN(5)))
		return Token{Key: key}, c[key]
	case []any:
		if len(c) > 0 {
			i := rnd.IntN(len(c))
			return Token{Index: i}, c[i]
		}
	}
	return Token{}, nil
}

func anyTree(rnd *rand.Rand, depth int) any {
	switch n := rnd.IntN(7); {
	case depth > 0 && n < 3:
		m := map[string]any{}
		for range rnd.IntN(4) {
			m[string(rune('a'+rnd.IntN(5)))] = anyTree(rnd, depth-1)
		}
		return m
	case depth > 0 && n < 6:
		l := make([]any, rnd.IntN(4))
		for i := range l {
			l[i] = anyTree(rnd, depth-1)
		}
		return l
	}
	return int64(rnd.IntN(9))
}

func containers(v any) (out []any) {
	switch v := v.(type) {
	case map[string]any:
		out = append(out, v)
		for _, k := range slices.Sorted(maps.Keys(v)) {
			out = append(out, containers(v[k])...)
		}
	case []any:
		out = append(out, v)
		for _, c := range v {
			out = append(out, containers(c)...)
		}
	}
	return out
}

func cloned(v any) any {
	switch v := v.(type) {
	case map[string]any:
		m := make(map[string]any, len(v))
		for k, c := range v {
			m[k] = cloned(c)
		}
		return m
	case []any:
		l := make([]any, len(v))
		for i, c := range v {
			l[i] = cloned(c)
		}
		return l
	}
	return v
}

// A panic between two writes, or in one that cannot be done, leaves nothing behind
// after Undo.
func TestEditUndoesAfterPanic(t *testing.T) {
	for name, write := range map[string]func(*Edit){
		"between writes":      func(*Edit) { panic("no ink") },
		"beyond the list":     func(e *Edit) { e.Down(Token{Key: "l"}, e.At().(map[string]any)["l"]); e.Set(Token{Index: 9}, "x") },
		"deleted beyond":      func(e *Edit) { e.Down(Token{Key: "l"}, e.At().(map[string]any)["l"]); e.Delete(Token{Index: 9}) },
		"inserted beyond":     func(e *Edit) { e.Down(Token{Key: "l"}, e.At().(map[string]any)["l"]); e.Insert(9, "x") },
		"below what is plain": func(e *Edit) { e.Down(Token{Key: "s"}, "v"); e.Set(Token{Key: "a"}, "x") },
	} {
		for _, own := range []bool{false, true} {
			var e Edit
			e.Reset(map[string]any{"l": []any{"a"}, "s": "v"})
			if own {
				e.Set(Token{Key: "t"}, "u")
			}
			before := cloned(e.Root())
			e.Begin()
			e.Set(Token{Key: "a"}, "b")
			func() {
				defer func() {
					if recover() == nil {
						t.Errorf("%s: no panic", name)
					}
				}()
				write(&e)
			}()
			if e.Undo(); !Equal(e.Root(), before) {
				t.Errorf("%s: %v after Undo, want %v", name, e.Root(), before)
			}
			if e.Set(Token{Key: "a"}, "c"); e.Root().(map[string]any)["a"] != "c" {
				t.Errorf("%s: no writing after Undo", name)
			}
		}
	}
}

// A hundred members of one map copy it once.
func TestEditWritesInPlace(t *testing.T) {
	labels := map[string]any{}
	for i := range 200 {
		labels[fmt.Sprint("l", i)] = "x"
	}
	var e Edit
	e.Reset(map[string]any{"labels": labels})
	e.Down(Token{Key: "labels"}, labels)
	write := func() {
		e.Begin()
		e.Set(Token{Key: "l0"}, "y")
	}
	write()
	if got := hammer.Allocs(t, write); got > 0 {
		t.Errorf("%v allocations for a member of the Edit's own map", got)
	}
	if labels["l0"] != "x" {
		t.Error("the given map was modified")
	}
}
