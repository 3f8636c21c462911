package webhook

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unsafe"

	"github.com/go-json-experiment/json/jsontext"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mapd-project/mapd/pkg/memory"
)

// reader reads reviews in the form in which servers write them, in one pass. It leaves all
// others to sigs.k8s.io/json. What it accepts, sigs.k8s.io/json accepts too, as the same review.
type reader struct {
	tokens *jsontext.Decoder
	in     bytes.Buffer
	// text is the document. The strings of trees are parts of it, so that they need not be
	// copied one by one. at is the position of the first byte that is not read yet.
	text string
	at   int
	// kept has copies of the strings that may outlive the request, such as keys of caches: they
	// must not keep the whole document in memory.
	kept strings.Builder
	// members and items are those of the maps and lists whose ends are not read yet, so that
	// each is allocated with its final size.
	members []member
	items   []any
	// plain is a buffer for an unescaped string.
	plain []byte
	// account is charged for the tree in steps; owed is the part that it was not charged for
	// yet.
	account *memory.Account
	owed    int64
	ctx     context.Context
	// deepest is the largest depth that account was charged for.
	depth, deepest int
	// empty and none are used for all empty maps and lists of the document. Trees are never
	// modified, and managedFields have many empty maps.
	empty map[string]any
	none  any
}

type member struct {
	name  string
	value any
}

var readers = sync.Pool{New: func() any { return &reader{tokens: new(jsontext.Decoder)} }}

// maxPlain bounds the size of plain that is kept between documents.
const maxPlain = 4 << 10

// errUnusual says that sigs.k8s.io/json has to read the document.
var errUnusual = errors.New("not a review as servers write them")

// read reads a whole document. It returns false if sigs.k8s.io/json has to read it. An error is
// final: account has no memory for the review, or ctx is done. Strings of the review are parts
// of text.
func (out *review) read(ctx context.Context, account *memory.Account, text string) (bool, error) {
	r := readers.Get().(*reader)
	r.in = *bytes.NewBuffer(bytesOf(text))
	// Objects may name a field twice, the last one counts.
	r.tokens.Reset(&r.in, jsontext.AllowDuplicateNames(true))
	r.text, r.at = text, 0
	r.empty, r.none = map[string]any{}, []any{}
	r.ctx, r.account, r.owed = ctx, account, 0
	r.depth, r.deepest = 0, 0

	err := r.fields(out.field)
	if err == nil {
		if _, end := r.tokens.ReadToken(); !errors.Is(end, io.EOF) {
			err = errUnusual
		}
	}
	if err == nil {
		err = r.settle()
	}
	if err == nil && len(text) <= keptText {
		// Reuse the reader, but not after a large document, whose buffers would stay, and not
		// after one that was not read to its end, since they would need cleaning.
		r.in, r.text, r.kept, r.empty, r.none = bytes.Buffer{}, "", strings.Builder{}, nil, nil
		r.ctx, r.account = nil, nil
		r.tokens.Reset(&r.in)
		readers.Put(r)
	}
	if refused := account.Refused(); refused != nil {
		return false, refused
	}
	if ctx.Err() != nil {
		return false, context.Cause(ctx)
	}
	return err == nil, nil
}

// bytesOf returns the bytes of a string without a copy. They must not be modified.
func bytesOf(s string) []byte { return unsafe.Slice(unsafe.StringData(s), len(s)) }

// keptText is the size of the largest document after which a reader is reused.
const keptText = 128 << 10

// chargeStep is how many bytes a reader may owe before it charges the account and checks ctx.
const chargeStep = 16 << 10

// charge charges for n bytes that are about to be allocated.
func (r *reader) charge(n int) error {
	if r.owed += int64(n); r.owed < chargeStep {
		return nil
	}
	return r.settle()
}

func (r *reader) settle() error {
	n := r.owed
	r.owed = 0
	if err := r.account.Charge(n); err != nil {
		return err
	}
	return r.ctx.Err()
}

// field reads the value of one of the review's fields.
func (out *review) field(r *reader, name string) error {
	switch name {
	case "apiVersion":
		return into(r, &out.APIVersion)
	case "kind":
		return into(r, &out.Kind)
	case "request":
		if r.tokens.PeekKind() == 'n' {
			return r.skip()
		}
		out.Request = new(reviewRequest)
		return r.fields(out.Request.field)
	}
	return r.skip()
}

func (out *reviewRequest) field(r *reader, name string) (err error) {
	switch name {
	case "uid":
		return into(r, &out.UID)
	case "kind":
		return r.triple(&out.Kind.Group, &out.Kind.Version, "kind", &out.Kind.Kind)
	case "resource":
		return r.triple(&out.Resource.Group, &out.Resource.Version, "resource", &out.Resource.Resource)
	case "subResource":
		return into(r, &out.SubResource)
	case "requestKind":
		if r.tokens.PeekKind() == 'n' {
			return r.skip()
		}
		k := new(metav1.GroupVersionKind)
		out.RequestKind = k
		return r.triple(&k.Group, &k.Version, "kind", &k.Kind)
	case "requestResource":
		if r.tokens.PeekKind() == 'n' {
			return r.skip()
		}
		g := new(metav1.GroupVersionResource)
		out.RequestResource = g
		return r.triple(&g.Group, &g.Version, "resource", &g.Resource)
	case "requestSubResource":
		return into(r, &out.RequestSubResource)
	case "name":
		return into(r, &out.Name)
	case "namespace":
		return into(r, &out.Namespace)
	case "operation":
		return into(r, &out.Operation)
	case "userInfo":
		return r.user(&out.UserInfo)
	case "object":
		out.Object, err = r.object()
	case "oldObject":
		out.OldObject, err = r.object()
	case "dryRun":
		out.DryRun, err = r.boolean()
	case "options":
		out.Options, err = r.tree()
	default:
		return r.skip()
	}
	return err
}

// into reads a string into a field.
func into[T ~string](r *reader, out *T) error {
	s, err := r.str()
	*out = T(s)
	return err
}

// triple reads a group, a version and a third field.
func (r *reader) triple(group, version *string, name string, third *string) error {
	return r.fields(func(r *reader, field string) error {
		switch field {
		case "group":
			return into(r, group)
		case "version":
			return into(r, version)
		case name:
			return into(r, third)
		}
		return r.skip()
	})
}

func (r *reader) user(out *authenticationv1.UserInfo) error {
	return r.fields(func(r *reader, name string) (err error) {
		switch name {
		case "username":
			return into(r, &out.Username)
		case "uid":
			return into(r, &out.UID)
		case "groups":
			out.Groups, err = r.strs()
			return err
		case "extra":
			if r.tokens.PeekKind() == 'n' {
				return r.skip()
			}
			out.Extra = map[string]authenticationv1.ExtraValue{}
			return r.fields(func(r *reader, name string) error {
				if err := r.charge(mapSlot * 2); err != nil {
					return err
				}
				list, err := r.strs()
				out.Extra[r.keep(name)] = list
				return err
			})
		}
		return r.skip()
	})
}

// manyFields exceeds the number of fields of any structure of a review. A document that has a
// field twice is left to encoding/json, which may merge the two.
const manyFields = 64

// fields reads a JSON object with known fields, calling field for each. null has no fields.
func (r *reader) fields(field func(r *reader, name string) error) error {
	open, err := r.next()
	if err != nil || open == "null" {
		return err
	}
	if open != "{" {
		return errUnusual
	}
	seen := make([]string, 0, manyFields/4)
	for {
		text, err := r.next()
		if err != nil || text == "}" {
			return err
		}
		name, err := r.unquote(text)
		if err != nil {
			return err
		}
		if len(seen) == manyFields || slices.Contains(seen, name) {
			return errUnusual
		}
		seen = append(seen, name)
		if err := field(r, name); err != nil {
			return err
		}
	}
}

// skip reads a value and ignores it.
func (r *reader) skip() error {
	err := r.tokens.SkipValue()
	r.at = int(r.tokens.InputOffset())
	return err
}

// str reads a string of the envelope. null leaves it empty.
func (r *reader) str() (string, error) {
	text, err := r.next()
	if err != nil || text == "null" {
		return "", err
	}
	if text[0] != '"' {
		return "", errUnusual
	}
	s, err := r.unquote(text)
	if err == nil {
		// Expressions read the string as a value of its own, which takes memory once more.
		err = r.charge(len(s) + 2*valueSize)
	}
	return r.keep(s), err
}

// strs reads a list of strings, which null leaves nil.
func (r *reader) strs() ([]string, error) {
	text, err := r.next()
	if err != nil || text == "null" {
		return nil, err
	}
	if text != "[" {
		return nil, errUnusual
	}
	list := []string{}
	for r.tokens.PeekKind() != ']' {
		if len(list) == cap(list) {
			if err := r.charge(2 * stringSize * cap(list)); err != nil {
				return nil, err
			}
		}
		s, err := r.str()
		if err != nil {
			return nil, err
		}
		list = append(list, s)
	}
	_, err = r.next()
	return list, err
}

func (r *reader) boolean() (*bool, error) {
	text, err := r.next()
	switch {
	case err != nil:
		return nil, err
	case text == "null":
		return nil, nil
	case text == "true", text == "false":
		return new(text == "true"), nil
	}
	return nil, errUnusual
}

// object reads a tree whose kind may outlive the request.
func (r *reader) object() (any, error) {
	v, err := r.tree()
	if m, ok := v.(map[string]any); ok {
		for _, name := range [...]string{"apiVersion", "kind"} {
			if s, ok := m[name].(string); ok {
				m[name] = r.keep(s)
			}
		}
	}
	return v, err
}

func (r *reader) tree() (any, error) {
	text, err := r.next()
	if err != nil {
		return nil, err
	}
	return r.value(text)
}

// value reads the tree that begins with a token.
func (r *reader) value(text string) (any, error) {
	switch text[0] {
	case '{':
		return r.mapping()
	case '[':
		return r.list()
	case '"':
		if err := r.charge(stringSize); err != nil {
			return nil, err
		}
		return r.unquote(text)
	case 'n':
		return nil, nil
	case 't':
		return true, nil
	case 'f':
		return false, nil
	}
	if err := r.charge(numberSize); err != nil {
		return nil, err
	}
	return number(text)
}

// down enters a map or a list. It is called before the content is read.
func (r *reader) down() error {
	if r.depth++; r.depth <= r.deepest {
		return nil
	}
	r.deepest = r.depth
	return r.charge(levelSize)
}

func (r *reader) mapping() (any, error) {
	if err := r.down(); err != nil {
		return nil, err
	}
	begin := len(r.members)
	for {
		text, err := r.next()
		if err != nil {
			return nil, err
		}
		if text == "}" {
			break
		}
		name, err := r.unquote(text)
		if err != nil {
			return nil, err
		}
		v, err := r.tree()
		if err != nil {
			return nil, err
		}
		if n := cap(r.members); len(r.members) == n {
			if err := r.charge(2 * n * (stringSize + valueSize)); err != nil {
				return nil, err
			}
		}
		r.members = append(r.members, member{name, v})
	}
	r.depth--
	members := r.members[begin:]
	if len(members) == 0 {
		return r.empty, nil
	}
	if err := r.charge(mapCost(len(members))); err != nil {
		return nil, err
	}
	m := make(map[string]any, len(members))
	for i := range members {
		m[members[i].name] = members[i].value
	}
	clear(members) // must not refer to the tree when the reader is reused
	r.members = r.members[:begin]
	return m, nil
}

func (r *reader) list() (any, error) {
	if err := r.down(); err != nil {
		return nil, err
	}
	begin := len(r.items)
	for {
		text, err := r.next()
		if err != nil {
			return nil, err
		}
		if text == "]" {
			break
		}
		v, err := r.value(text)
		if err != nil {
			return nil, err
		}
		if n := cap(r.items); len(r.items) == n {
			if err := r.charge(2 * n * valueSize); err != nil {
				return nil, err
			}
		}
		r.items = append(r.items, v)
	}
	r.depth--
	items := r.items[begin:]
	if len(items) == 0 {
		return r.none, nil
	}
	if err := r.charge(listCost(len(items))); err != nil {
		return nil, err
	}
	list := slices.Clone(items)
	clear(items)
	r.items = r.items[:begin]
	return slices.Clip(list), nil
}

// next reads a token and returns it as it is written.
func (r *reader) next() (string, error) {
	if _, err := r.tokens.ReadToken(); err != nil {
		return "", err
	}
	from, end := r.at, int(r.tokens.InputOffset())
	r.at = end
	for between(r.text[from]) {
		from++
	}
	return r.text[from:end], nil
}

// between reports whether c may stand between two tokens.
func between(c byte) bool {
	switch c {
	case ' ', '\t', '\r', '\n', ',', ':':
		return true
	}
	return false
}

// unquote returns the value of a JSON string.
func (r *reader) unquote(text string) (string, error) {
	if strings.IndexByte(text, '\\') < 0 {
		return text[1 : len(text)-1], nil
	}
	if err := r.charge(2 * len(text)); err != nil {
		return "", err
	}
	b, err := jsontext.AppendUnquote(r.plain[:0], text)
	if cap(b) <= maxPlain {
		r.plain = b
	}
	return string(b), err
}

// number returns an int64 for an integer and a float64 for another number, as sigs.k8s.io/json
// does.
func number(text string) (any, error) {
	if !strings.Contains(text, ".") {
		if i, err := strconv.ParseInt(text, 10, 64); err == nil {
			return i, nil
		}
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return nil, err
	}
	return f, nil
}

// keep copies a string out of the document.
func (r *reader) keep(s string) string {
	const room = 512 // enough for a usual envelope
	if s == "" {
		return ""
	}
	if r.kept.Cap()-r.kept.Len() < len(s) {
		r.kept = strings.Builder{}
		r.kept.Grow(max(room, len(s)))
	}
	r.kept.WriteString(s)
	return r.kept.String()[r.kept.Len()-len(s):]
}
