package cel

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// shout answers with the keys in capitals, and has nothing for "gone".
type shout struct{ asked []string }

func (s *shout) External(_ context.Context, provider string, keys []string) (map[string]string, error) {
	s.asked = append(s.asked, provider+" "+strings.Join(keys, ","))
	if provider == "down" {
		return nil, errors.New("down is down")
	}
	out := map[string]string{}
	for _, k := range keys {
		if k != "gone" {
			out[k] = strings.ToUpper(k)
		}
	}
	return out, nil
}

func TestExternalData(t *testing.T) {
	for expr, want := range map[string]any{
		`externalData("p", ["b", "a", "b"])`:                            map[string]any{"a": "A", "b": "B"},
		`externalData("p", object.keys)["a"]`:                           "A",
		`externalData("p", ["gone"])[?"gone"].orValue("none")`:          "none",
		`externalData("p", ["gone"])["gone"]`:                           "no such key: gone",
		`externalData("p", [])`:                                         map[string]any{},
		`externalData("down", ["a"])`:                                   "externalData: down is down",
		`externalData("p", [dyn(1)])`:                                   "externalData: a key is not a string",
		`externalData("p", object.many)`:                                "externalData: 1001 keys, at most 1000 can be asked for at once",
		`externalData(object.long, ["a"])`:                              "externalData: the name of the provider has 254 bytes, a name has at most 253",
		`externalData("p", ["a"]).transformMap(k, v, v + k)`:            map[string]any{"a": "Aa"},
		`externalData(object.keys[0], ["a"]) == {"a": "A"} ? "y" : "n"`: "y",
	} {
		s := testEnv(t).Asking().Scope(Vars{Variables: true})
		if err := s.Define("v", expr); err != nil {
			t.Fatalf("%s: %v", expr, err)
		}
		p, err := s.Compile(`[JSONPatch{op: "add", path: "/v", value: variables.v}]`, JSONPatch)
		if err != nil {
			t.Fatal(err)
		}
		if p.Reads()&ReadsOutside == 0 || p.scope.variables[0].program.IsQuick() {
			t.Errorf("%s reads %b, quick %v", expr, p.Reads(), p.scope.variables[0].program.IsQuick())
		}
		many := make([]any, maxAskKeys+1)
		for i := range many {
			many[i] = fmt.Sprint(i)
		}
		outside := &shout{}
		budget := &Budget{Remaining: MutationBudget}
		for range 2 { // no result is kept
			ops, err := p.JSONPatch(t.Context(), s.Bind(&Input{Object: map[string]any{"keys": []any{"a", "b"}, "many": many, "long": strings.Repeat("p", 254)}, Outside: outside}, budget))
			var got any
			if err == nil {
				got = ops[0].Value
			}
			if text, ok := want.(string); ok && err != nil && strings.HasSuffix(err.Error(), text) {
				got = want
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s: %v\n%s", expr, err, diff)
			}
		}
		if n := len(outside.asked); n != 2 && n != 0 || n == 2 && MutationBudget-budget.Remaining < 2*askCost {
			t.Errorf("%s: asked %v, cost %d", expr, outside.asked, MutationBudget-budget.Remaining)
		}
	}
}

// externalData is there only where it was asked for, and never in a condition.
func TestExternalDataIsNotThere(t *testing.T) {
	const expr = `externalData("p", ["a"])["a"] == "A"`
	for name, s := range map[string]*Scope{
		"native": testEnv(t).Scope(Vars{Variables: true}), "condition": testEnv(t).Asking().Scope(Vars{}),
	} {
		if _, err := s.Compile(expr, Bool); err == nil || !strings.Contains(err.Error(), "undeclared reference to 'externalData'") {
			t.Errorf("%s: %v", name, err)
		}
	}
	s := testEnv(t).Asking().Within(t.Context()).Scope(Vars{Variables: true})
	p, err := s.Compile(`Object{a: externalData("p", ["a"])["a"]}`, Object)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Object(t.Context(), s.Bind(&Input{}, nil)); err == nil || !strings.Contains(err.Error(), "nothing outside can be asked") {
		t.Errorf("without anybody to ask: %v", err)
	}
}
