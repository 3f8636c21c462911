package cel

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func observing(t *testing.T) *Env {
	t.Helper()
	env, err := NewEnv(Options{Observe: true})
	if err != nil {
		t.Fatal(err)
	}
	return env
}

// String returns an evaluation on one line.
func (e Evaluation) String() string {
	var b strings.Builder
	if e.Name != "" {
		b.WriteString(e.Name + " = ")
	}
	fmt.Fprintf(&b, "%v", e.Result)
	for _, r := range e.Reads {
		b.WriteString("; " + r.Text + " =")
		for i, v := range r.Values {
			if i == len(r.Values)-1 && r.LeftOut > 0 {
				fmt.Fprintf(&b, " (%d)", r.LeftOut)
			}
			fmt.Fprintf(&b, " %v", v)
		}
	}
	if e.LeftOut > 0 {
		fmt.Fprintf(&b, "; %d more", e.LeftOut)
	}
	return b.String()
}

// traceCases have what expressions read of traceInput, found by hand.
var traceCases = []struct{ expression, want string }{
	{`object.spec.replicas > 2`, `true; object.spec.replicas = 3`},
	{`object.metadata.labels.env == "prod"`, `false; object.metadata.labels.env = "dev"`},
	{`object.metadata.labels["env"] == params.env`, `false; object.metadata.labels["env"] = "dev"; params.env = "prod"`},
	// What was not evaluated is not there.
	{`object.spec.replicas > 5 && object.metadata.name == "web"`, `false; object.spec.replicas = 3`},
	{`object.spec.replicas > 1 || object.metadata.name == "web"`, `true; object.spec.replicas = 3`},
	{`(object.spec.replicas > 5 ? object.metadata.name : request.name) == "r"`, `true; object.spec.replicas = 3; request.name = "r"`},
	{`(object.spec.paused ? object.metadata : object.spec).replicas == 3`, `true; object.spec.paused = false`},
	{`has(object.spec.strategy) && object.spec.strategy == "x"`, `false; has(object.spec.strategy) = false`},
	{`object.?spec.?strategy.orValue(object.metadata.name) == "web"`, `true; object.?spec.?strategy = optional.none(); object.metadata.name = "web"`},
	{`object.?spec.?replicas.orValue(int(params.n)) == 3`, `true; object.?spec.?replicas = optional.of(3)`},
	{`object.?metadata.labels[?"env"].optMap(e, e + "x").orValue("") == "devx"`,
		`true; object.?metadata.labels[?"env"] = optional.of("dev"); e = "dev"`},
	// Errors are values too.
	{`object.metadata.labels.team == "red" || true`, `true; object.metadata.labels.team = error: no such key: team`},
	// Indexes that are not constant are read themselves.
	{`object.metadata.labels[params.key] == "dev"`, `true; object.metadata.labels[params.key] = "dev"; params.key = "env"`},
	{`object.items[size(params.key) - 3].n == 0`, `true; object.items[size(params.key) - 3].n = 0; params.key = "env"`},
	{`object.items[params.yes ? 1 : 0].n == 1`, `true; object.items[params.yes ? 1 : 0].n = 1; params.yes = true`},
	// Macros: the first values, the last one, and how many others.
	{`object.items.exists(i, i.n == 1)`, `true; object.items = [{"n":0},{"n":1},{"n":2},{"n":3},{"n":4},{"n":5},{"n":6}]; i.n = 0 1`},
	{`object.items.map(i, i.n).size() == 7`, `true; object.items = [{"n":0},{"n":1},{"n":2},{"n":3},{"n":4},{"n":5},{"n":6}]; i.n = 0 1 2 (3) 6`},
	{`object.metadata.labels.all(k, k in params)`, `true; object.metadata.labels = {"env":"dev"}; k = "env"; params = {"env":"prod","key":"env","n":"7","yes":true}`},
	// A name that a macro binds is not the variable of that name.
	{`[1, 2].all(object, object > 0)`, `true; object = 1 2`},
	{`request.userInfo.username.startsWith("a") && oldObject == null`, `true; request.userInfo.username = "ann"; oldObject = null`},
	{`namespaceObject.metadata.labels.env == "x" || type(object.spec.replicas) == int`,
		`true; namespaceObject.metadata.labels.env = error: no such key: metadata; object.spec.replicas = 3`},
	{`[object.spec.replicas, object.spec.paused].size() == 2`, `true; object.spec.replicas = 3; object.spec.paused = false`},
}

func traceInput() *Input {
	var items []any
	for n := range 7 {
		items = append(items, map[string]any{"n": int64(n)})
	}
	return &Input{
		Object: map[string]any{
			"apiVersion": "apps/v1", "kind": "Deployment", "items": items,
			"metadata": map[string]any{"name": "web", "labels": map[string]any{"env": "dev"}},
			"spec":     map[string]any{"replicas": int64(3), "paused": false},
		},
		Params:    map[string]any{"env": "prod", "key": "env", "n": "7", "yes": true},
		Namespace: map[string]any{},
		Request: func() map[string]any {
			return map[string]any{"name": "r", "userInfo": map[string]any{"username": "ann"}}
		},
	}
}

func TestTrace(t *testing.T) {
	env := observing(t)
	for _, c := range traceCases {
		s := env.Scope(Vars{Params: true})
		p, err := s.Compile(c.expression, Bool)
		if err != nil {
			t.Error(err)
			continue
		}
		a := s.Bind(traceInput(), nil)
		if _, err := p.Bool(t.Context(), a); err != nil {
			t.Error(c.expression, err)
		}
		trace := a.TakeTrace()
		if len(trace.Evaluations) != 1 || trace.Evaluations[0].String() != c.want {
			t.Errorf("%s\ngot  %v\nwant %s", c.expression, trace.Evaluations, c.want)
		}
		if a.TakeTrace() != nil {
			t.Error("the trace is there twice")
		}
	}
}

// Variables are evaluated before what needs them, once, and each at its own cost.
func TestTraceOfVariables(t *testing.T) {
	s := observing(t).Scope(Vars{Params: true, Variables: true})
	for _, v := range [][2]string{{"env", `object.metadata.labels.env`}, {"both", `variables.env + variables.env`}, {"unused", `object.spec`}} {
		if err := s.Define(v[0], v[1]); err != nil {
			t.Fatal(err)
		}
		s.Coverage(v[0]).Name = v[0]
	}
	p, err := s.Compile(`[JSONPatch{op: "add", path: "/x", value: variables.both + variables.env}]`, JSONPatch)
	if err != nil {
		t.Fatal(err)
	}
	p.Coverage().Name = "mutation"
	budget := &Budget{1000}
	a := s.Bind(traceInput(), budget)
	if _, err := p.JSONPatch(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	var got []string
	var cost int64
	for _, e := range a.TakeTrace().Evaluations {
		got = append(got, e.String())
		cost += e.Cost
	}
	want := []string{
		`env = "dev"; object.metadata.labels.env = "dev"`,
		`both = "devdev"; variables.env = "dev"`,
		`mutation = [{"op":"add","path":"/x","value":"devdevdev"}]; variables.both = "devdev"; variables.env = "dev"`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if cost != 1000-budget.Remaining {
		t.Errorf("the evaluations cost %d, and %d were charged", cost, 1000-budget.Remaining)
	}
}

// Of Secrets a trace shows what is true or false, and what is in no Secret's data.
func TestTraceOfSecrets(t *testing.T) {
	secret := map[string]any{
		"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "data": map[string]any{"pin": "aHVzaA=="},
		"metadata": map[string]any{"name": "s", "labels": map[string]any{"env": "dev"}, "annotations": map[string]any{"last": "aHVzaA=="}},
	}
	request := func() map[string]any { return map[string]any{"name": "r"} }
	cases := []struct {
		in               *Input
		expression, want string
	}{
		{&Input{Object: secret}, `object.data.pin`, `*** object.data.pin = ***`},
		{&Input{Object: secret}, `object`, `*** object = ***`},
		{&Input{Object: secret}, `dyn(object)["data"]`, `*** object = ***`},
		{&Input{Object: secret}, `object[string("data")]`, `*** object[string("data")] = ***`},
		{&Input{Object: secret}, `object.metadata`, `*** object.metadata = ***`},
		{&Input{Object: secret}, `object.metadata.annotations.last`, `*** object.metadata.annotations.last = ***`},
		{&Input{Object: secret}, `object.metadata.labels.env`, `*** object.metadata.labels.env = "dev"`},
		{&Input{Object: secret}, `object.type == "x" || has(object.data.pin)`, `true object.type = "Opaque"; has(object.data.pin) = true`},
		{&Input{Object: secret}, `object.data.map(k, object.data[k])`, `*** object.data = ***; object.data[k] = ***; k = ***`},
		{&Input{Object: secret}, `object.data.map(request, request)`, `*** object.data = ***; request = ***`},
		{&Input{Object: secret}, `int(object.data.pin)`, `*** object.data.pin = ***`},
		{&Input{Object: secret}, `variables.pin + request.name`, `*** variables.pin = ***; request.name = "r"`},
		{&Input{Object: secret}, `variables.name`, `*** variables.name = ***`},
		{&Input{Object: secret}, `request.name`, `*** request.name = "r"`},
		{&Input{Params: secret}, `variables.name`, `"r" variables.name = "r"`},
		{&Input{OldObject: secret}, `oldObject.data.pin`, `*** oldObject.data.pin = ***`},
		{&Input{Params: secret}, `params.data.pin`, `*** params.data.pin = ***`},
		{&Input{Params: map[string]any{"data": secret["data"]}}, `params.data.pin`, `*** params.data.pin = ***`},
		{&Input{Params: secret, Object: map[string]any{"a": "b"}}, `object.a`, `"b" object.a = "b"`},
	}
	env := observing(t)
	for _, c := range cases {
		s := env.Scope(Vars{Params: true, SecretParams: c.in.Params["data"] != nil, Variables: true})
		for _, v := range [][2]string{{"pin", `object.data.pin`}, {"name", `request.name`}} {
			if err := s.Define(v[0], v[1]); err != nil {
				t.Fatal(err)
			}
		}
		p, _, err := s.compile(c.expression, anything)
		if err != nil {
			t.Error(err)
			continue
		}
		c.in.Request = request
		a := s.Bind(c.in, nil)
		_, _ = p.evaluate(func() *Activation { a.begin(t.Context()); return a }())
		all := a.TakeTrace().Evaluations
		text, _ := json.Marshal(all)
		if strings.Contains(string(text), "aHVzaA") {
			t.Errorf("%s shows the Secret: %s", c.expression, text)
		}
		if got := strings.Replace(all[len(all)-1].String(), ";", "", 1); got != c.want {
			t.Errorf("%s\ngot  %s\nwant %s", c.expression, got, c.want)
		}
	}
}

func TestExcerpt(t *testing.T) {
	cases := []struct{ expression, text, json string }{
		{`"a\"ü\n"`, `"a\"ü\n"`, `{"value":"a\"ü\n"}`},
		{`[dyn(1), dyn(2u), dyn(2.5), dyn(null), dyn(true)]`, `[1,2,2.5,null,true]`, `{"value":[1,2,2.5,null,true]}`},
		{`{"b": dyn(1), "a": dyn([{"c": 2}])}`, `{"a":[{"c":2}],"b":1}`, `{"value":{"a":[{"c":2}],"b":1}}`},
		{`{1: 2}`, `{"1":2}`, `{"text":"{\"1\":2}"}`},
		{`optional.of("x")`, `optional.of("x")`, `{"text":"optional.of(\"x\")"}`},
		{`optional.none()`, `optional.none()`, `{"text":"optional.none()"}`},
		{`duration("90s")`, `duration("1m30s")`, `{"text":"duration(\"1m30s\")"}`},
		{`timestamp("2026-01-02T03:04:05Z")`, `timestamp("2026-01-02T03:04:05Z")`, `{"text":"timestamp(\"2026-01-02T03:04:05Z\")"}`},
		{`b"ab"`, `bytes("ab")`, `{"text":"bytes(\"ab\")"}`},
		{`quantity("1Gi")`, `kubernetes.Quantity("1Gi")`, `{"text":"kubernetes.Quantity(\"1Gi\")"}`},
		{`type(1)`, `type`, `{"text":"type"}`},
		{`variables`, `kubernetes.variables`, `{"text":"kubernetes.variables"}`},
		{`object.nothing`, `error: no such key: nothing`, `{"error":"no such key: nothing"}`},
		{`object.long`, `"` + strings.Repeat("é", 127) + `…`, `{"cut":true,"text":"\"` + strings.Repeat("é", 127) + `"}`},
		{`object.wide`, `{5000 entries…`, `{"cut":true,"text":"{5000 entries"}`},
		{`object.list`, `[` + strings.Repeat("7,", 127) + `7…`, ``},
	}
	wide, list := map[string]any{}, make([]any, 5000)
	for i := range list {
		wide[fmt.Sprint(i)], list[i] = "x", int64(7)
	}
	in := &Input{Object: map[string]any{"long": strings.Repeat("é", 1<<20), "wide": wide, "list": list}}
	env := observing(t)
	for _, c := range cases {
		s := env.Scope(Vars{Variables: true})
		p, _, err := s.compile(c.expression, anything)
		if err != nil {
			t.Error(err)
			continue
		}
		a := s.Bind(in, nil)
		a.begin(t.Context())
		_, _ = p.evaluate(a)
		e := a.TakeTrace().Evaluations[0].Result
		data, err := json.Marshal(e)
		if e.String() != c.text || err != nil || c.json != "" && string(data) != c.json {
			t.Errorf("%s\ngot  %s\n     %s, %v\nwant %s\n     %s", c.expression, e, data, err, c.text, c.json)
		}
	}
}

// Observing changes neither results nor costs of what the case corpus evaluates.
func TestObservedCorpus(t *testing.T) {
	plain, err := NewEnv(Options{CELGo: true})
	if err != nil {
		t.Fatal(err)
	}
	want, got := corpusPrograms(t, plain), corpusPrograms(t, observing(t))
	if len(want) != len(got) || len(want) < 100 {
		t.Fatalf("%d programs, and %d if they are observed", len(want), len(got))
	}
	for i, w := range want {
		g := got[i]
		budget, other := &Budget{1 << 40}, &Budget{1 << 40}
		a, b := w.scope.Bind(w.input, budget), g.scope.Bind(g.input, other)
		a.begin(t.Context())
		b.begin(t.Context())
		_, wantErr := w.program.evaluate(a)
		_, gotErr := g.program.evaluate(b)
		if fmt.Sprint(wantErr) != fmt.Sprint(gotErr) || *budget != *other {
			t.Errorf("%s: %s\nobserved   %v, cost %d\nunobserved %v, cost %d", w.name, w.program.expr, gotErr, 1<<40-other.Remaining, wantErr, 1<<40-budget.Remaining)
		}
	}
}

// A macro over a large object, whose values are large too, leaves a small trace.
func TestTraceIsBounded(t *testing.T) {
	list := make([]any, 1<<10)
	for i := range list {
		list[i] = map[string]any{"s": strings.Repeat("x", 1<<10), "n": int64(i)}
	}
	in := &Input{Object: map[string]any{"list": list, "nil": nil}}
	var many []string
	for i := range 2 * maxReads {
		many = append(many, fmt.Sprintf("has(object.f%d)", i))
	}
	for _, expression := range []string{
		`object.list.all(e, e.s != "" && object.list.size() > e.n && object != null)`,
		`object.list.map(e, object.list).size() > 1`,
		`object.list.all(e, object.list[e.n].s.size() + size(object.list[e.n].s) > 0)`,
		strings.Join(many, " || ") + " || true",
	} {
		s := observing(t).Scope(Vars{})
		p, err := s.Compile(expression, Bool)
		if err != nil {
			t.Fatal(err)
		}
		a := s.Bind(in, nil)
		if ok, err := p.Bool(t.Context(), a); !ok || err != nil {
			t.Fatal(ok, err)
		}
		trace := a.TakeTrace()
		text, err := json.Marshal(trace)
		if err != nil || len(text) > 16<<10 {
			t.Errorf("%.60s: %d bytes, %v", expression, len(text), err)
		}
		if e := trace.Evaluations[0]; strings.HasPrefix(expression, "has") && (len(e.Reads) != maxReads || e.LeftOut != maxReads) {
			t.Errorf("%d reads and %d left out", len(e.Reads), e.LeftOut)
		}
		// So do many evaluations of one request.
		a.traced = maxTraced - 1
		for n := range 2 {
			s.Rebind(a, in, nil)
			if _, err := p.Bool(t.Context(), a); err != nil {
				t.Fatal(err)
			}
			if trace = a.TakeTrace(); len(trace.Evaluations) != 1-n || trace.LeftOut != n {
				t.Errorf("%d evaluations, and %d left out", len(trace.Evaluations), trace.LeftOut)
			}
		}
	}
}
