package cel

import (
	"slices"
	"strings"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"

	"github.com/mapd-project/mapd/pkg/cel/syntax"
)

// Trace has the evaluations of one use of an Activation, in the order in which they ended:
// a variable comes before the expression that needed it first.
type Trace struct {
	Evaluations []Evaluation `json:"evaluations"`
	// LeftOut is how many evaluations were not kept, since there were too many.
	LeftOut int `json:"leftOut,omitempty"`

	open []*recording
}

// Evaluation is what one evaluation of an expression read and gave. What was not
// evaluated, such as the other way of a ?:, is not among Reads.
type Evaluation struct {
	// Name is that of the Coverage.
	Name  string `json:"name"`
	Reads []Read `json:"reads,omitempty"`
	// LeftOut is how many places of the expression that read something have no entry in
	// Reads, since there are too many.
	LeftOut int     `json:"leftOut,omitempty"`
	Result  Excerpt `json:"result"`
	// Cost is that of the expression without its variables, in CEL units.
	Cost int64 `json:"cost"`
}

// Read is a part of an expression that reads a value, such as object.spec.replicas, and
// what it read: in a macro perhaps many values, of which the first ones and the last one
// are kept.
type Read struct {
	Text   string    `json:"text"`
	Values []Excerpt `json:"values"`
	// LeftOut is how many values between the last two are not kept.
	LeftOut int `json:"leftOut,omitempty"`
}

const (
	// keptValues is how many values of a Read are kept, and maxReads how many Reads of an
	// expression.
	keptValues, maxReads = 4, 64
	// maxTraced is about how many bytes of text the Traces of a request keep.
	maxTraced = 4 << 20
)

// read is a place of an expression that reads something.
type read struct {
	text string
	// root is the name that the place begins with, "" if a macro has bound it.
	root string
	// variable is the one that is read if root is variables.
	variable string
	// fixed says that the place has one value in an evaluation, and open that it is no
	// secret in a Secret either.
	fixed, open bool
}

// link returns what a selection or an index is of, and the expressions besides; nil for
// anything else. The calls of authorizer are like selections.
func link(e ast.Expr) (next ast.Expr, rest []ast.Expr) {
	switch e.Kind() {
	case ast.SelectKind:
		return e.AsSelect().Operand(), nil
	case ast.CallKind:
		call := e.AsCall()
		switch {
		case indexes(e):
			return call.Args()[0], call.Args()[1:]
		case call.IsMemberFunction() && rootOf(call.Target()) == authzName:
			return call.Target(), call.Args()
		}
	}
	return nil, nil
}

// indexes reports whether e is x[y], x[?y] or x.?y.
func indexes(e ast.Expr) bool {
	if e.Kind() != ast.CallKind {
		return false
	}
	switch e.AsCall().FunctionName() {
	case operators.Index, operators.OptIndex, operators.OptSelect:
		return true
	}
	return false
}

// rootOf returns the name that a chain of links begins with, "" if it begins with another
// expression.
func rootOf(e ast.Expr) string {
	for next := e; next != nil; next, _ = link(e) {
		e = next
	}
	switch {
	case e.Kind() == ast.IdentKind && !accumulator(e):
		return syntax.IdentName(e)
	case e.Kind() == ast.CallKind && e.AsCall().FunctionName() == externalDataName:
		return externalDataName
	}
	return ""
}

// fieldsOf returns the names that a chain of links selects, "" for what is no literal.
func fieldsOf(e ast.Expr) (fields []string) {
	for next, rest := link(e); next != nil; next, rest = link(e) {
		name := ""
		switch {
		case e.Kind() == ast.SelectKind:
			name = e.AsSelect().FieldName()
		case len(rest) == 1 && rest[0].Kind() == ast.LiteralKind:
			if s, ok := rest[0].AsLiteral().(types.String); ok {
				name = string(s)
			} else {
				name = "0" // an element
			}
		}
		fields = append(fields, name)
		e = next
	}
	slices.Reverse(fields)
	return fields
}

// read notes an expression that reads something.
func (f *pointFinder) read(e ast.Expr) {
	r := read{root: rootOf(e)}
	if r.root == "" {
		return
	}
	fields := fieldsOf(e)
	if slices.Contains(f.bound, r.root) {
		r.root = ""
	}
	if r.root == variablesName && len(fields) > 0 {
		r.variable = fields[0]
	}
	r.fixed = r.root != "" && !slices.Contains(fields, "")
	r.open = openInSecret(fields)
	r.text = cutText(f.whole(e), 4*maxPointText)
	c := f.coverage
	i := slices.Index(c.reads, r)
	if i < 0 {
		if i = len(c.reads); i == maxReads {
			c.unread++
			return
		}
		c.reads = append(c.reads, r)
	}
	c.at[e.ID()] = node{point: -1, read: i, indexed: indexes(e)}
}

// openInSecret reports whether a field of a Secret may be shown. Annotations are not:
// kubectl keeps a copy of the object in one.
func openInSecret(fields []string) bool {
	if len(fields) == 0 {
		return false
	}
	switch fields[0] {
	case "apiVersion", "kind", "type", "immutable":
		return true
	case "metadata":
		return len(fields) > 1 && slices.Contains([]string{"name", "generateName", "namespace", "labels", "uid"}, fields[1])
	}
	return false
}

// secrets returns the names that stand for Secrets in an input.
func (p *Program) secrets(in *Input) (all Reads) {
	is := func(m map[string]any) bool { return m["kind"] == "Secret" && m["apiVersion"] == "v1" }
	if is(in.Object) || is(in.OldObject) {
		all |= ReadsObject | ReadsOldObject
	}
	if is(in.Params) || p.scope.vars.SecretParams {
		all |= ReadsParams
	}
	return all
}

// hides reports whether a place may read what is in the Secrets among names.
func (p *Program) hides(r *read, names Reads) bool {
	switch r.root {
	case requestName, namespaceName:
		return false
	case objectName, oldObjectName, paramsName:
		return readsOf[r.root]&names != 0 && !r.open
	case variablesName:
		if i, ok := p.scope.byName[r.variable]; ok {
			return p.scope.variables[i].program.mayTell(names)
		}
	}
	return p.mayTell(names)
}

// mayTell reports whether the value of an expression may be in a Secret: it reads one, or
// may become part of the object, which is one.
func (p *Program) mayTell(names Reads) bool { return p.reads&names != 0 || names&ReadsObject != 0 }

// TakeTrace returns what was evaluated since a was bound or TakeTrace was called, nil if
// the Env does not observe.
func (a *Activation) TakeTrace() *Trace {
	t := a.trace
	a.trace = nil
	return t
}

// ForgetTraces makes room for the Traces of another request.
func (a *Activation) ForgetTraces() { a.traced = 0 }

// recording is an evaluation under way.
type recording struct{ seen []seen } // by read
type seen struct {
	values []ref.Val
	count  int
}

// execute runs the plan, and records it if the Env observes.
func (p *Program) execute(a *Activation) (ref.Val, int64, error) {
	if p.coverage == nil {
		return p.plan.run(a.ctx, a)
	}
	if a.trace == nil {
		a.trace = &Trace{}
	}
	t := a.trace
	r := &recording{seen: make([]seen, len(p.coverage.reads))}
	t.open = append(t.open, r)
	val, cost, err := p.plan.run(a.ctx, a)
	t.open = t.open[:len(t.open)-1]
	if a.traced >= maxTraced {
		t.LeftOut++
		return val, cost, err
	}
	names := p.secrets(a.in)
	e := p.evaluation(r, names)
	e.Cost = cost
	if err != nil {
		val = types.WrapErr(err)
	}
	e.Result = shown(val, p.mayTell(names))
	t.Evaluations = append(t.Evaluations, e)
	a.traced += e.size()
	return val, cost, err
}

// evaluation returns what was read.
func (p *Program) evaluation(r *recording, names Reads) Evaluation {
	e := Evaluation{Name: p.coverage.Name, LeftOut: p.coverage.unread}
	for i, s := range r.seen {
		if s.count == 0 {
			continue
		}
		of := &p.coverage.reads[i]
		read := Read{Text: of.text, LeftOut: s.count - len(s.values)}
		for _, v := range s.values {
			read.Values = append(read.Values, shown(v, p.hides(of, names)))
		}
		e.Reads = append(e.Reads, read)
	}
	return e
}

// size returns about how much memory an Evaluation takes.
func (e *Evaluation) size() int {
	n := 128 + len(e.Result.Text)
	for i := range e.Reads {
		n += 64
		for _, v := range e.Reads[i].Values {
			n += 64 + len(v.Text)
		}
	}
	return n
}

// note keeps a value that a place had.
func (a *Activation) note(place int, r *read, v ref.Val) {
	if a == nil || a.trace == nil || len(a.trace.open) == 0 {
		return
	}
	s := &a.trace.open[len(a.trace.open)-1].seen[place]
	if s.count > 0 && r.fixed {
		return
	}
	if s.count++; len(s.values) < keptValues {
		s.values = append(s.values, v)
	} else {
		s.values[keptValues-1] = v
	}
}

// observing makes nodes count their values, and keep them for a Trace. It comes after the
// observer of costs, which sees the nodes themselves.
func (c *Coverage) observing(attributes interpreter.AttributeFactory) interpreter.InterpretableDecoratorV2 {
	known := map[interpreter.InterpretableV2]bool{}
	return func(i interpreter.InterpretableV2) (interpreter.InterpretableV2, error) {
		// The planner makes an attribute of the y in x[y] too, which has the ID of the
		// whole. It is new, and that of x is not.
		again := known[i]
		known[i] = true
		n, ok := c.at[i.ID()]
		if !ok {
			return i, nil
		}
		o := observed{node: n, coverage: c}
		if attribute, ok := i.(interpreter.InterpretableAttribute); ok {
			if n.indexed && !again {
				return i, nil
			}
			return &observedAttribute{attribute, o, i.ID(), attributes}, nil
		}
		if _, constant := i.(interpreter.InterpretableConst); constant && n.point < 0 {
			return i, nil // such as the name of a type
		}
		return &observedNode{i, o}, nil
	}
}

// observed is what is observed of a node.
type observed struct {
	node
	coverage *Coverage
}

func (o *observed) value(vars interpreter.Activation, v ref.Val) {
	if o.point >= 0 {
		o.coverage.count(o.point, v)
	}
	if o.read >= 0 {
		meter, _ := vars.ResolveName(meterName)
		a, _ := meter.(*Activation)
		a.note(o.read, &o.coverage.reads[o.read], v)
	}
}

// count counts the outcome of a point.
func (c *Coverage) count(point int, v ref.Val) {
	outcomes, outcome := len(c.points[point].Outcomes), -1
	switch v := v.(type) {
	case *types.Err, *types.Unknown:
	case types.Bool:
		outcome = index(!bool(v) && outcomes == 2)
	case *types.Optional:
		outcome = index(!v.HasValue() && outcomes == 2)
	default:
		if outcomes == 1 {
			outcome = 0
		}
	}
	if outcome >= 0 {
		c.hits[point][outcome].Add(1)
	}
}

// observedNode is a node that is no attribute.
type observedNode struct {
	interpreter.InterpretableV2
	observed
}

func (o *observedNode) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	v := o.InterpretableV2.Exec(frame)
	o.value(frame, v)
	return v
}

func (o *observedNode) Eval(vars interpreter.Activation) ref.Val {
	return o.Exec(interpreter.AsFrame(vars))
}

// observedAttribute is a node of a kind that others take apart: x.y of x.y.z, i of x[i],
// and both ways of a ?:. It is used in the same way, and costs the same.
type observedAttribute struct {
	interpreter.InterpretableAttribute
	observed
	id         int64
	attributes interpreter.AttributeFactory
}

func (o *observedAttribute) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	v := o.InterpretableAttribute.Exec(frame)
	o.value(frame, v)
	return v
}

func (o *observedAttribute) Eval(vars interpreter.Activation) ref.Val {
	return o.Exec(interpreter.AsFrame(vars))
}

// Attr is what one way of a ?: becomes.
func (o *observedAttribute) Attr() interpreter.Attribute { return o }

// AddQualifier is called for (c ? x : y).z.
func (o *observedAttribute) AddQualifier(q interpreter.Qualifier) (interpreter.Attribute, error) {
	_, err := o.InterpretableAttribute.Attr().AddQualifier(q)
	return o, err
}

// Resolve implements interpreter.Attribute.
func (o *observedAttribute) Resolve(vars interpreter.Activation) (any, error) {
	v, err := o.InterpretableAttribute.Resolve(vars)
	switch {
	case o.ID() != o.id: // z of AddQualifier
	case err != nil:
		o.value(vars, types.WrapErr(err))
	default:
		o.value(vars, o.Adapter().NativeToValue(v))
	}
	return v, err
}

// Qualify follows cel-go's attrQualify.
func (o *observedAttribute) Qualify(vars interpreter.Activation, obj any) (any, error) {
	q, err := o.qualifier(vars)
	if err != nil {
		return nil, err
	}
	return q.Qualify(vars, obj)
}

// QualifyIfPresent follows cel-go's attrQualifyIfPresent.
func (o *observedAttribute) QualifyIfPresent(vars interpreter.Activation, obj any, presenceOnly bool) (any, bool, error) {
	q, err := o.qualifier(vars)
	if err != nil {
		return nil, false, err
	}
	return q.QualifyIfPresent(vars, obj, presenceOnly)
}

func (o *observedAttribute) qualifier(vars interpreter.Activation) (interpreter.Qualifier, error) {
	v, err := o.Resolve(vars)
	if err != nil {
		return nil, err
	}
	attr := o.InterpretableAttribute.Attr()
	return o.attributes.NewQualifier(nil, attr.ID(), v, attr.IsOptional())
}

// cutText cuts a text that has more characters than limit.
func cutText(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	if r := []rune(s); len(r) > limit {
		return strings.TrimSpace(string(r[:limit-1])) + "…"
	}
	return s
}
