package webhookconfig

import (
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
)

// ConditionsCondition is the name of the condition that excludes from an entry
// what the matchConditions of its policies exclude.
const ConditionsCondition = "policy-conditions"

// DependsOnPolicies reports whether a condition of an entry depends on the
// entry's policies. The others are the same for all entries.
func DependsOnPolicies(m admissionregistrationv1.MatchCondition) bool {
	return m.Name == NamesCondition || m.Name == ConditionsCondition
}

// Bounds on the condition of an entry, which a server evaluates for each request.
const (
	// maxGates is how many different conditions of policies an entry may have.
	maxGates = 4
	// maxGateBytes is how long they may be together.
	maxGateBytes = 1024
	// maxGateDepth is how deep a condition may be nested. CEL's parsers have a
	// limit, and the condition of an entry nests those of policies.
	maxGateDepth = 16
)

// gateOf returns an expression that is true for every request that a policy's
// matchConditions do not exclude, and "" for one that is always true. The
// expression has no errors and uses only what every server with matchConditions
// has.
//
// A policy has a gate only if all its conditions are about constant parts of
// the request: the object may have changed when the policy sees it. Two errors
// have precedence over a false condition and have to reach mapd: missing
// parameters, and a budget that another condition has used up.
func gateOf(p *admissionregistrationv1.MutatingAdmissionPolicy) string {
	if p.Spec.ParamKind != nil {
		return ""
	}
	var all []string
	length := 0
	for i := range p.Spec.MatchConditions {
		gate, ok := parseGate(p.Spec.MatchConditions[i].Expression)
		if length += len(gate); !ok || length > maxGateBytes {
			return ""
		}
		all = append(all, gate)
	}
	slices.Sort(all)
	return joinGates(slices.Compact(all), " && ")
}

func joinGates(gates []string, operator string) string {
	if len(gates) == 1 {
		return gates[0]
	}
	var b strings.Builder
	for i, g := range gates {
		if i > 0 {
			b.WriteString(operator)
		}
		b.WriteString("(" + g + ")")
	}
	return b.String()
}

// bothGates returns the conditions of two areas together, nil if one of them
// accepts every request.
func bothGates(a, b []string) []string {
	if a == nil || b == nil {
		return nil
	}
	both := unite(a, b)
	length := 0
	for _, g := range both {
		length += len(g)
	}
	if len(both) > maxGates || length > maxGateBytes {
		return nil
	}
	return both
}

// A gateType is a type of the expressions that gates may have.
type gateType int

const (
	noType gateType = iota
	boolType
	textType
	listType // of texts
	intType
)

// gateFields are the fields of request that have the same value for a webhook's
// entry and for a policy, whichever version of the object each of them matches.
// kind is not one of them. Optional fields are absent when empty, and reading
// them is then an error.
var gateFields = map[string]struct {
	gateType
	optional bool
}{
	"request.operation":                {textType, false},
	"request.name":                     {textType, true},
	"request.namespace":                {textType, true},
	"request.subResource":              {textType, true},
	"request.requestSubResource":       {textType, true},
	"request.dryRun":                   {boolType, true},
	"request.userInfo.username":        {textType, true},
	"request.userInfo.groups":          {listType, true},
	"request.resource.group":           {textType, false},
	"request.resource.version":         {textType, false},
	"request.resource.resource":        {textType, false},
	"request.requestResource.group":    {textType, false},
	"request.requestResource.version":  {textType, false},
	"request.requestResource.resource": {textType, false},
	"request.requestKind.group":        {textType, false},
	"request.requestKind.version":      {textType, false},
	"request.requestKind.kind":         {textType, false},
}

// parseGate reads an expression of the part of CEL that gates may use. It
// returns an expression that is true wherever the given one is true or an
// error. It accepts less than CEL does, and every text that it accepts means
// the same in CEL.
func parseGate(expression string) (string, bool) {
	if len(expression) > maxGateBytes {
		return "", false
	}
	p := &gateParser{rest: expression, read: map[string]bool{}}
	p.next()
	text, t := p.binary(0)
	if t != boolType || p.token != "" {
		return "", false
	}
	var absent []string
	for f := range p.read {
		absent = append(absent, "!has("+f+")")
	}
	if len(absent) == 0 {
		return text, true
	}
	slices.Sort(absent)
	return strings.Join(absent, " || ") + " || (" + text + ")", true
}

// gateParser reads tokens. Input that it cannot read has no type and stays
// unread.
type gateParser struct {
	rest, token string // token: the current one, "" at the end and for what is none
	depth       int
	read        map[string]bool // the optional fields that are read
}

const gateSpaces = " \t\n\r\f"

// next reads a token. Strings with escapes and comments are not tokens.
func (p *gateParser) next() {
	p.rest = strings.TrimLeft(p.rest, gateSpaces)
	n := 0
	switch {
	case p.rest == "":
	case p.rest[0] == '\'' || p.rest[0] == '"':
		if end := strings.IndexByte(p.rest[1:], p.rest[0]); end >= 0 && plainText(p.rest[1:1+end]) {
			n = end + 2
		}
	case isWord(p.rest[0]):
		for n < len(p.rest) && isWord(p.rest[n]) {
			n++
		}
	case len(p.rest) > 1 && slices.Contains([]string{"==", "!=", "&&", "||"}, p.rest[:2]):
		n = 2
	case strings.IndexByte("!()[],.", p.rest[0]) >= 0:
		n = 1
	}
	if n == 0 && p.rest != "" {
		p.token, p.rest = "?", ""
		return
	}
	p.token, p.rest = p.rest[:n], p.rest[n:]
}

func isWord(c byte) bool {
	return c == '_' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}

// plainText reports whether s is printable ASCII without escapes.
func plainText(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' || r == '\\' })
}

// take reads the current token if it is token, and reports whether it was.
func (p *gateParser) take(token string) bool {
	if p.token != token {
		return false
	}
	p.next()
	return true
}

// gateOperators are the binary operators, loosest first.
var gateOperators = [][]string{{"||"}, {"&&"}, {"==", "!=", "in"}}

// binary reads operands that are joined by the operators of a level.
func (p *gateParser) binary(level int) (string, gateType) {
	if level == len(gateOperators) {
		return p.unary()
	}
	text, t := p.binary(level + 1)
	for t != noType && slices.Contains(gateOperators[level], p.token) {
		operator := p.token
		p.next()
		right, u := p.binary(level + 1)
		switch {
		case operator == "in" && t == textType && u == listType:
		case (operator == "==" || operator == "!=") && t == u && t != listType:
		case level < 2 && t == boolType && u == boolType:
		default:
			return "", noType
		}
		text, t = text+" "+operator+" "+right, boolType
	}
	return text, t
}

func (p *gateParser) unary() (string, gateType) {
	if p.depth++; p.depth > maxGateDepth {
		return "", noType
	}
	defer func() { p.depth-- }()
	if p.take("!") {
		text, t := p.unary()
		if t != boolType || text[0] == '!' {
			return "", noType
		}
		return "!" + text, t
	}
	return p.member()
}

// member reads an operand with its method calls.
func (p *gateParser) member() (string, gateType) {
	text, t := p.primary()
	for t != noType && p.take(".") {
		method := p.token
		p.next()
		if !p.take("(") {
			return "", noType
		}
		switch method {
		case "startsWith", "endsWith", "contains":
			argument, u := p.binary(0)
			if t != textType || u != textType {
				return "", noType
			}
			text, t = text+"."+method+"("+argument+")", boolType
		case "size":
			if t != textType && t != listType {
				return "", noType
			}
			text, t = text+".size()", intType
		default:
			return "", noType
		}
		if !p.take(")") {
			return "", noType
		}
	}
	return text, t
}

func (p *gateParser) primary() (string, gateType) {
	token := p.token
	switch p.next(); {
	case token == "":
	case token == "true" || token == "false":
		return token, boolType
	case token[0] == '\'' || token[0] == '"':
		return quoteCEL(token[1 : len(token)-1]), textType
	case '1' <= token[0] && token[0] <= '9' && len(token) < 9 && strings.Trim(token, "0123456789") == "", token == "0":
		return token, intType
	case token == "(":
		if text, t := p.binary(0); t != noType && p.take(")") {
			return "(" + text + ")", t
		}
	case token == "[":
		return p.list()
	case token == "has" && p.take("("):
		if p.take("request") {
			if field := p.field(); field != "" && strings.Count(field, ".") > 0 && p.take(")") {
				return "has(" + field + ")", boolType
			}
		}
	case token == "size" && p.take("("):
		if text, t := p.binary(0); (t == textType || t == listType) && p.take(")") {
			return "size(" + text + ")", intType
		}
	case token == "request":
		if field := p.field(); field != "" {
			if gateFields[field].optional {
				p.read[field] = true
			}
			return field, gateFields[field].gateType
		}
	}
	return "", noType
}

// field reads the fields after request, up to one of gateFields.
func (p *gateParser) field() string {
	path := "request"
	for range 2 {
		if !p.take(".") {
			return ""
		}
		path += "." + p.token
		p.next()
		if _, ok := gateFields[path]; ok {
			return path
		}
	}
	return ""
}

// list reads strings up to the end of their list.
func (p *gateParser) list() (string, gateType) {
	var items []string
	for {
		text, t := p.primary()
		if t != textType {
			return "", noType
		}
		items = append(items, text)
		if p.take("]") {
			return "[" + strings.Join(items, ", ") + "]", listType
		}
		if !p.take(",") {
			return "", noType
		}
	}
}
