package webhook

import (
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
)

// ConditionsCondition is the name of the condition that keeps requests away from an
// entry which the matchConditions of its policies leave out.
const ConditionsCondition = "policy-conditions"

// DependsOnPolicies reports that a condition of an entry says which requests the
// entry's policies want; the others are those of all entries.
func DependsOnPolicies(m admissionregistrationv1.MatchCondition) bool {
	return m.Name == NamesCondition || m.Name == ConditionsCondition
}

// Bounds on the condition of an entry, which a server evaluates for each request.
const (
	// maxGates is how many different conditions of policies an entry has at most.
	maxGates = 4
	// maxGateBytes is how long they are at most together.
	maxGateBytes = 1024
	// maxGateDepth is how deep a condition is nested at most. CEL's parsers have a
	// limit, and what an entry says is nested deeper than what the policy does.
	maxGateDepth = 16
)

// gateOf returns an expression that is true of every request which a policy's
// matchConditions do not leave out, and "" for one that is always true. It has no
// errors, and every server with matchConditions knows what it uses.
//
// Only a policy all of whose conditions are about constant parts of the request has
// one: the object may be another when the policy sees it. Two errors come before a
// condition that is false, and have to reach mapd: parameters that are not there, and a
// budget that another condition has used up.
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

// bothGates are the conditions of two areas, nil if every request passes one of them.
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

// gateFields are the fields of request that are the same for a webhook's entry and for
// a policy, whichever version of the object each of them matches: kind is not. Those
// that are optional are left out where they are empty, and reading them is an error.
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

// parseGate reads an expression of the part of CEL that gates may use, and returns one
// that is true wherever that one is true or an error. It takes less than CEL does in
// every respect, never more, and each text has the meaning that CEL gives it.
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

// gateParser reads tokens. What it cannot read has no type, and stays unread.
type gateParser struct {
	rest, token string // token: the current one, "" at the end and for what is none
	depth       int
	read        map[string]bool // the optional fields that are read
}

const gateSpaces = " \t\n\r\f"

// next reads a token. Strings that need an escape are none, nor are comments.
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

// plainText reports that s has printable ASCII only, and no escapes.
func plainText(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' || r == '\\' })
}

// take reads a token if it is this one.
func (p *gateParser) take(token string) bool {
	if p.token != token {
		return false
	}
	p.next()
	return true
}

// gateOperators are the operators of two operands, those that bind the least first.
var gateOperators = [][]string{{"||"}, {"&&"}, {"==", "!=", "in"}}

// binary reads operands that operators of a level join.
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

// member reads an operand with the methods that are called on it.
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

// field reads what follows request, up to one of gateFields.
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

// list reads texts, up to the end of their list.
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
