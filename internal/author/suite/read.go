package suite

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/mapd-project/mapd/internal/author/suite/cases"
	"github.com/mapd-project/mapd/internal/document/manifest"
	"github.com/mapd-project/mapd/pkg/mapd"
)

// Suite is a suite that was read.
type Suite struct {
	// File is its file, as it was given.
	File string
	suite
	doc   *mapd.Document
	units []*unit

	// For a test of Kyverno's, given is set, docs are the policies up to the one that the results
	// are about, and beside are objects that these may read.
	given        bool
	tests        string
	docs, beside []*mapd.Document
}

// unit is one request of a case, with the expected result.
type unit struct {
	suite *Suite
	name  string
	path  string // of the case in the document
	row   int    // of its table, -1 without
	line  int
	spec  testCase
	// object, old and want are nil if they are not given. many: object is one of several objects
	// of a file.
	object, old, want *mapd.Document
	many              bool
	context           []*mapd.Document
	skip              string
	claim             *claim // of a test of Kyverno's, beside want
}

// Read reads the suites of a file. The errors have the places of what is wrong; the
// suites that they are about are not returned.
func Read(file string) ([]*Suite, []error) {
	docs, errs := documents(file)
	var suites []*Suite
	for _, d := range docs {
		read, wrong := readDocument(file, d)
		errs = append(errs, wrong...)
		if len(wrong) == 0 {
			suites = append(suites, read...)
		}
	}
	if len(docs) == 0 && len(errs) == 0 {
		errs = append(errs, fmt.Errorf("%s: there is no suite in it", file))
	}
	return suites, errs
}

// documents reads the objects of a file.
func documents(file string) (docs []*mapd.Document, errs []error) {
	for _, in := range manifest.Inputs([]string{file}, nil) {
		r, err := in.Open()
		if err != nil {
			return nil, []error{err}
		}
		for d, err := range mapd.Read(in.Name, r) {
			switch {
			case len(docs) == manifest.MaxDocuments:
				r.Close()
				return nil, append(errs, fmt.Errorf("%s: %w", file, manifest.ErrManyDocuments))
			case err != nil:
				errs = append(errs, err)
			case d.Object() != nil:
				docs = append(docs, d)
			}
		}
		r.Close()
	}
	return docs, errs
}

// readDocument reads a suite, of mapd, gator or Kyverno.
func readDocument(file string, d *mapd.Document) ([]*Suite, []error) {
	var s *Suite
	var errs []error
	switch apiVersion, kind := d.Object().GetAPIVersion(), d.Object().GetKind(); {
	case apiVersion == APIVersion && kind == Kind:
		s, errs = readSuite(file, d)
	case apiVersion == gatorVersion && kind == Kind:
		s, errs = readGator(file, d)
	case isKyverno(apiVersion, kind):
		return readKyverno(file, d)
	default:
		return nil, []error{d.Errorf("%s %s is no suite; want %s %s", apiVersion, kind, APIVersion, Kind)}
	}
	return []*Suite{s}, errs
}

func readSuite(file string, d *mapd.Document) (*Suite, []error) {
	u := d.Object()
	s := &Suite{File: file, doc: d}
	dec := &decoder{doc: d}
	dec.decode("", u.Object, reflect.ValueOf(&s.suite).Elem())
	if len(dec.errs) > 0 {
		return nil, dec.errs
	}
	if len(s.Policies) == 0 {
		dec.fail("policies", "policies: a suite needs the files of its policies")
	}
	raw := u.Object["cases"].([]any)
	for i := range s.Cases {
		s.addCase(dec, i, raw[i].(map[string]any))
	}
	seen := map[string]bool{}
	for _, n := range s.units {
		if seen[n.name] {
			dec.fail(n.path+".name", "%s.name: %q is given twice", n.path, n.name)
		}
		seen[n.name] = true
	}
	return s, dec.errs
}

// addCase adds the units of a case.
func (s *Suite) addCase(d *decoder, i int, raw map[string]any) {
	path := fmt.Sprintf("cases[%d]", i)
	c := s.Cases[i]
	if c.Table == nil {
		s.addUnits(d, path, -1, c.Name, c, raw)
		return
	}
	if len(c.Table) == 0 {
		d.fail(path+".table", "%s.table: it has no rows, so that the case would not run", path)
	}
	template := maps.Clone(raw)
	delete(template, "table")
	for row, columns := range c.Table {
		at := fmt.Sprintf("%s.table[%d]", path, row)
		fill := &filling{columns: columns, used: map[string]bool{"name": true}}
		filled := fill.in(template).(map[string]any)
		for _, column := range slices.Sorted(maps.Keys(columns)) {
			if !fill.used[column] {
				d.fail(at, "%s.%s: no text of the case has $(%s)", at, column, column)
			}
		}
		var spec testCase
		own := &decoder{doc: d.doc}
		own.decode(path, filled, reflect.ValueOf(&spec).Elem())
		name := fmt.Sprintf("%s/#%d", spec.Name, row+1)
		if n, ok := columns["name"].(string); ok {
			name = spec.Name + "/" + n
		}
		if len(own.errs) == 0 {
			s.addUnits(own, path, row, name, spec, filled)
		}
		for _, err := range own.errs {
			if !slices.ContainsFunc(d.errs, func(e error) bool { return e.Error() == err.Error() }) {
				d.errs = append(d.errs, err)
			}
		}
	}
}

// filling replaces references in texts by the values of a row.
type filling struct {
	columns map[string]any
	used    map[string]bool
}

func (f *filling) in(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for _, k := range slices.Sorted(maps.Keys(v)) { // two may become the same
			key, ok := f.in(k).(string)
			if !ok {
				key = k
			}
			out[key] = f.in(v[k])
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = f.in(e)
		}
		return out
	case string:
		for column, value := range f.columns {
			ref := "$(" + column + ")"
			if v == ref {
				f.used[column] = true
				return value
			}
		}
		// All references are replaced in one pass, because a value may look like a reference.
		var pairs []string
		for _, column := range slices.Sorted(maps.Keys(f.columns)) {
			ref := "$(" + column + ")"
			if strings.Contains(v, ref) {
				f.used[column] = true
				pairs = append(pairs, ref, inText(f.columns[column]))
			}
		}
		return strings.NewReplacer(pairs...).Replace(v)
	}
	return v
}

// inText returns a value as a part of a text: what is no text as JSON.
func inText(v any) string {
	if s, ok := v.(string); ok {
		return s
	}
	out, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(out)
}

// addUnits adds the requests of a case that has no table, or of one of its rows.
func (s *Suite) addUnits(d *decoder, path string, row int, name string, c testCase, raw map[string]any) {
	line := d.doc.ErrorAt(path, errors.New("")).Line
	if row >= 0 {
		line = d.doc.ErrorAt(fmt.Sprintf("%s.table[%d]", path, row), errors.New("")).Line
	}
	base := unit{suite: s, name: name, path: path, row: row, line: line, spec: c, skip: c.Skip}
	if s.Skip != "" {
		base.skip = s.Skip
	}
	deletes := c.Operation == "DELETE"
	switch {
	case deletes && (c.Old == nil || c.Object != nil || c.Objects != ""):
		d.fail(path, "%s: a DELETE has old, the object that is deleted, and no other", path)
		return
	case !deletes && (c.Object == nil) == (c.Objects == ""):
		d.fail(path, "%s: want object or objects, one of them", path)
		return
	}
	base.old = s.one(d, path+".old", c.Old)
	if deletes {
		base.object, base.old = base.old, nil
	}
	for i, src := range c.Context {
		base.context = append(base.context, s.several(d, fmt.Sprintf("%s.context[%d]", path, i), src)...)
	}
	switch {
	case c.Old != nil && c.Objects != "":
		d.fail(path+".old", "%s.old: is for a case with object", path)
	case c.Operation == "UPDATE" && c.Old == nil:
		d.fail(path+".operation", "%s.operation: UPDATE needs old, the object before it", path)
	case c.Operation != "UPDATE" && !deletes && c.Operation != "" && c.Old != nil:
		d.fail(path+".old", "%s.old: is for UPDATE and DELETE", path)
	}
	s.checkExpect(d, path+".expect", &c)
	if c.Objects == "" {
		if !deletes {
			base.object = s.one(d, path+".object", c.Object)
		}
		if c.Expect != nil {
			base.want = s.one(d, path+".expect.object", c.Expect.Object)
		}
		s.units = append(s.units, &base)
		return
	}
	objects := s.several(d, path+".objects", c.Objects)
	var wants []*mapd.Document
	if c.Expect != nil && c.Expect.Objects != "" {
		wants = s.several(d, path+".expect.objects", c.Expect.Objects)
		if len(wants) != len(objects) {
			d.fail(path+".expect.objects", "%s.expect.objects: %s has %d objects, and %s has %d", path, c.Expect.Objects, len(wants), c.Objects, len(objects))
			return
		}
	}
	for i, object := range objects {
		u := base
		u.object, u.many, u.name = object, true, name+"/"+object.Name()
		if wants != nil {
			u.want = wants[i]
		}
		s.units = append(s.units, &u)
	}
}

// checkExpect finds expectations that cannot be.
func (s *Suite) checkExpect(d *decoder, path string, c *testCase) {
	e := c.Expect
	if e == nil {
		return // for --update
	}
	var set []string
	for name, is := range map[string]bool{
		"unchanged": e.Unchanged, "object": e.Object != nil, "objects": e.Objects != "", "patch": e.Patch != nil, "fields": e.Fields != nil, "denied": e.Denied != nil,
	} {
		if is {
			set = append(set, name)
		}
	}
	slices.Sort(set)
	switch {
	case len(set) != 1:
		d.fail(path, "%s: want one of denied, fields, object, objects, patch, unchanged; there are %d: %s", path, len(set), strings.Join(set, ", "))
	case set[0] == "object" && c.Objects != "":
		d.fail(path+".object", "%s.object: the case has objects; expect objects, a file with as many", path)
	case set[0] == "objects" && c.Objects == "":
		d.fail(path+".objects", "%s.objects: the case has one object; expect object", path)
	}
	if _, err := cases.NewJudge(e); err != nil {
		d.fail(path, "%s.%w", path, err)
	}
}

// near returns the path of a file that the suite names.
func (s *Suite) near(name string) string {
	if filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(filepath.Dir(s.File), filepath.FromSlash(name))
}

// one returns the one object that a field gives, nil if the field is not there.
func (s *Suite) one(d *decoder, path string, src source) *mapd.Document {
	if src == nil {
		return nil
	}
	docs := s.several(d, path, src)
	if len(docs) == 0 {
		return nil // reported
	}
	if len(docs) > 1 {
		d.fail(path, "%s: %v has %d objects; want one", path, src, len(docs))
	}
	return docs[0]
}

// several returns the objects that a field gives.
func (s *Suite) several(d *decoder, path string, src source) []*mapd.Document {
	switch src := src.(type) {
	case string:
		docs, errs := documents(s.near(src))
		for _, err := range errs {
			if os.IsNotExist(errors.Unwrap(err)) || errors.Is(err, os.ErrNotExist) {
				err = d.doc.ErrorAt(path, fmt.Errorf("%s: there is no file %s", path, s.near(src)))
			}
			d.errs = append(d.errs, err)
		}
		if len(docs) == 0 && len(errs) == 0 {
			d.fail(path, "%s: %s has no objects", path, s.near(src))
		}
		return docs
	case map[string]any:
		part, err := d.doc.Part(path, src)
		if err != nil {
			d.errs = append(d.errs, err)
			return nil
		}
		return []*mapd.Document{part}
	}
	return nil
}
