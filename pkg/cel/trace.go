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

// Trace has the evaluations of one use of an Activation in the order in which they ended: a
// variable comes before the expression that was the first to read it.
type Trace struct {
	Evaluations []Evaluation `json:"evaluations"`
	// LeftOut is how many evaluations are missing because the limit was reached.
	LeftOut int `json:"leftOut,omitempty"`

	open []*recording
}

// Evaluation is what one evaluation of an expression read and returned. Parts that were not
// evaluated, such as the other branch of a ?:, are not in Reads.
type Evaluation struct {
	// Name is the Name of the expression's Coverage.
	Name  string `json:"name"`
	Reads []Read `json:"reads,omitempty"`
	// LeftOut is how many parts of the expression that read a value are missing from Reads
	// because there are more than maxReads.
	LeftOut int     `json:"leftOut,omitempty"`
	Result  Excerpt `json:"result"`
	// Cost is the cost of the expression without its variables, in CEL units.
	Cost int64 `json:"cost"`
}

// Read is a part of an expression that reads a value, such as object.spec.replicas, and the
// values that it read. Within a macro there may be many, of which the first ones and the last
// one are kept.
type Read struct {
	Text   string    `json:"text"`
	Values []Excerpt `json:"values"`
	// LeftOut is how many values before the last one were dropped.
	LeftOut int `json:"leftOut,omitempty"`
}

const (
	// keptValues is how many values of a Read are kept, and maxReads how many Reads of an
	// expression.
	keptValues, maxReads = 4, 64
	// maxTraced bounds the estimated bytes of text that the Traces of a request keep.
	maxTraced = 4 << 20
)

// read is a part of an expression that reads a value.
type read struct {
	text string
	// root is the name that the part begins with, "" if a macro binds that name.
	root string
	// variable is the name of the variable that is read if root is variables.
	variable string
	// fixed says that the part has only one value in an evaluation. open says that the field is
	// not confidential even in a Secret.
	fixed, open bool
}

// link returns the operand of a selection or an index (next) and the other operands (rest); nil
// for other expressions. A method of authorizer counts as a selection.
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

// fieldsOf returns the names that a chain of links selects, with "" for an index that is not a
// literal.
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

// read adds e to the reads of the Coverage if it reads a value.
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

// openInSecret reports whether a field of a Secret may be shown. Annotations may not: kubectl
// apply keeps a copy of the object in one.
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

// secrets returns the names whose values in an input are Secrets.
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

// hides reports whether a part may read confidential data of the Secrets in names.
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

// mayTell reports whether the value of an expression may be in a Secret: the expression reads
// one, or its value may become part of the object, which is one.
func (p *Program) mayTell(names Reads) bool { return p.reads&names != 0 || names&ReadsObject != 0 }

// TakeTrace returns the evaluations since a was bound or TakeTrace was last called; nil without
// Options.Observe.
func (a *Activation) TakeTrace() *Trace {
	t := a.trace
	a.trace = nil
	return t
}

// ForgetTraces resets the limit on the size of Traces, for the next request.
func (a *Activation) ForgetTraces() { a.traced = 0 }

// recording is the record of the evaluation that runs at present.
type recording struct{ seen []seen } // by read
type seen struct {
	values []ref.Val
	count  int
}

// execute runs the plan, and records the evaluation with Options.Observe.
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

// evaluation returns the recorded reads.
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

// size estimates how much memory an Evaluation takes.
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

// note records a value of a part.
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

// observing makes nodes count their values, and record them for a Trace. It comes after the
// cost observer, which needs the original nodes.
func (c *Coverage) observing(attributes interpreter.AttributeFactory) interpreter.InterpretableDecoratorV2 {
	known := map[interpreter.InterpretableV2]bool{}
	return func(i interpreter.InterpretableV2) (interpreter.InterpretableV2, error) {
		// The planner makes an attribute of the y in x[y] too, with the ID of x[y]. That
		// attribute is new, while the one of x is known.
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

// observed says how a node is observed.
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

// observedNode is an observed node that is not an attribute.
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

// observedAttribute is an observed node of a kind that cel-go's planner takes apart: x.y of
// x.y.z, i of x[i], and both branches of a ?:. It behaves and costs the same as the original.
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

// Attr is called for the branches of a ?:.
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

// cutText shortens a text to limit characters.
func cutText(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	if r := []rune(s); len(r) > limit {
		return strings.TrimSpace(string(r[:limit-1])) + "…"
	}
	return s
}
