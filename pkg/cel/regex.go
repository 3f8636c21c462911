package cel

import (
	"fmt"
	"io"
	"regexp"
	"regexp/syntax"
	"strings"
	"unicode/utf8"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"

	"github.com/mapd-project/mapd/pkg/cel/quick"
)

// The bounds of a regular expression, in addition to maxInstructions. Go's own bounds are 3.3
// million instructions and 128 MiB, and none on time.
const (
	maxPattern = 64 << 10
	// instructionBytes is the memory of an instruction, compiled and while it runs.
	instructionBytes = 128
)

// pattern is a compiled regular expression.
type pattern struct {
	text         string
	regex        *regexp.Regexp
	instructions int64
	err          error // an error that only an evaluation returns
}

// compile compiles a regular expression if it is within the bounds.
func (a *Activation) compile(text string) *pattern {
	p := &pattern{text: text}
	if len(text) > maxPattern {
		p.err = fmt.Errorf("regular expression of %d bytes is too long: at most %d are evaluated", len(text), maxPattern)
		return p
	}
	a.use(int64(instructionBytes * len(text)))
	a.read(8 * workBytes * len(text))
	p.instructions = instructions(text)
	if p.instructions > maxInstructions {
		p.err = fmt.Errorf("regular expression is too large: it has more than %d instructions", maxInstructions)
		return p
	}
	tree, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		p.err = err
		return p
	}
	a.use(p.instructions * instructionBytes)
	a.chargeWork(p.instructions)
	p.text = tree.String() // can be embedded in another expression, which an open \Q cannot
	p.regex, p.err = regexp.Compile(text)
	return p
}

// compileRegex compiles a pattern that is constant when the program is planned, as
// cel-go's CompileRegexConstants does.
func (c *call) compileRegex() error {
	switch c.Function() {
	case "matches", "find", "findAll":
	default:
		return nil
	}
	if len(c.args) < 2 {
		return nil
	}
	constant, ok := c.args[1].(interpreter.InterpretableConst)
	if !ok {
		return nil
	}
	text, ok := constant.Value().(types.String)
	if !ok {
		return nil
	}
	c.regex = (*Activation)(nil).compile(string(text))
	return c.regex.err
}

// matching guards matches, find and findAll.
func matching(frame *interpreter.ExecutionFrame, c *call, args []ref.Val) ref.Val {
	text, ok := args[0].(types.String)
	by, also := args[1].(types.String)
	most := types.Int(-1)
	if ok && also && len(args) > 2 {
		most, ok = args[2].(types.Int)
	}
	if !ok || !also {
		return c.plain(args)
	}
	a := activationOf(frame)
	p := c.regex
	if p == nil {
		p = a.compile(string(by))
	}
	if p.err != nil {
		if c.Function() == "matches" {
			return types.NewErr("%v", p.err)
		}
		return types.NewErr("Illegal regex: %v", p.err)
	}
	s := string(text)
	work := times(p.instructions, int64(len(s)))
	if c.Function() == "findAll" {
		work = times(work, int64(len(s))) // each search may go to the end
	}
	if work <= quick.MatchAtOnce {
		a.chargeWork(work / workBytes)
		switch c.Function() {
		case "matches":
			return types.Bool(p.regex.MatchString(s))
		case "find":
			return types.String(p.regex.FindString(s))
		}
		return types.NewStringList(types.DefaultTypeAdapter, p.regex.FindAllString(s, int(most)))
	}
	a.use(p.instructions * instructionBytes)
	switch c.Function() {
	case "matches":
		return types.Bool(p.regex.MatchReader(p.reader(a, s)))
	case "find":
		at := p.regex.FindReaderIndex(p.reader(a, s))
		if at == nil {
			return types.String("")
		}
		return types.String(s[at[0]:at[1]])
	}
	return types.NewStringList(types.DefaultTypeAdapter, p.findAll(a, s, int(most)))
}

// findAll is FindAllString in steps. A search also gets the rune before its start, since a
// match may depend on it (as with \b), and skips that rune.
func (p *pattern) findAll(a *Activation, s string, most int) (found []string) {
	first := regexp.MustCompile(`\A(?s:.*?)(` + p.text + `)`)
	next := regexp.MustCompile(`\A(?s:.)(?s:.*?)(` + p.text + `)`)
	if most < 0 {
		most = len(s) + 1
	}
	// As regexp.allMatches: no empty match right behind another match.
	for pos, end := 0, -1; len(found) < most && pos <= len(s); {
		search, from := first, 0
		if pos > 0 {
			_, width := utf8.DecodeLastRuneInString(s[:pos])
			search, from = next, pos-width
		}
		at := search.FindReaderSubmatchIndex(p.reader(a, s[from:]))
		if at == nil {
			break
		}
		begin, stop := from+at[2], from+at[3]
		accept := true
		if stop == pos {
			accept = begin != end
			_, width := utf8.DecodeRuneInString(s[pos:])
			pos += max(width, 1)
		} else {
			pos = stop
		}
		end = stop
		if accept {
			a.use(2 * slotBytes)
			found = append(found, s[begin:stop])
		}
	}
	return found
}

// reader returns a reader of the runes of s that counts the work of regexp.
func (p *pattern) reader(a *Activation, s string) io.RuneReader {
	return &runes{a: a, rest: s, work: 1 + p.instructions/workBytes}
}

type runes struct {
	a    *Activation
	rest string
	work int64
}

func (r *runes) ReadRune() (rune, int, error) {
	if r.rest == "" {
		return 0, 0, io.EOF
	}
	r.a.chargeWork(r.work)
	c, size := utf8.DecodeRuneInString(r.rest)
	r.rest = r.rest[size:]
	return c, size, nil
}

// The size of a range of a character class, and of a class of a script or category, in
// instructions.
const (
	rangesPerInstruction = 10
	classInstructions    = 100
)

// instructions estimates how many instructions the program of a regular expression has, with
// its character classes.
func instructions(pattern string) int64 {
	// Parsing these classes takes as much memory as keeping them.
	classes := int64(strings.Count(pattern, `\p`)+strings.Count(pattern, `\P`)) * classInstructions
	if classes > maxInstructions {
		return classes
	}
	re, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return 0
	}
	return instructionsOf(re)
}

func instructionsOf(re *syntax.Regexp) int64 {
	n := int64(2)
	for _, sub := range re.Sub {
		n += instructionsOf(sub)
	}
	switch re.Op {
	case syntax.OpLiteral:
		n += int64(len(re.Rune))
	case syntax.OpCharClass:
		n += int64(len(re.Rune)) / rangesPerInstruction
	case syntax.OpRepeat:
		n *= int64(max(re.Min+1, re.Max, 1))
	}
	return n
}
