package suite

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/internal/author/coverage"
	"github.com/mapd-project/mapd/internal/author/ordercheck"
	"github.com/mapd-project/mapd/internal/author/suite/cases"
	"github.com/mapd-project/mapd/internal/document/manifest"
	"github.com/mapd-project/mapd/internal/externaldata"
	"github.com/mapd-project/mapd/internal/output/report"
	"github.com/mapd-project/mapd/internal/parallel"
	"github.com/mapd-project/mapd/pkg/cel"
	"github.com/mapd-project/mapd/pkg/engine"
	"github.com/mapd-project/mapd/pkg/kubewarden"
	"github.com/mapd-project/mapd/pkg/mapd"
	"github.com/mapd-project/mapd/pkg/tree"
)

// Options say how to run suites. The zero value runs every case once.
type Options struct {
	// Run selects cases by "FILE/NAME"; nil selects all.
	Run *regexp.Regexp
	// Count is how often each case is run; 0 means 1. All runs have to give the same result.
	Count int
	// Parallel is how many cases run at once; 0 is one for each core.
	Parallel int
	// Modules returns the loader of modules of Kubewarden's policies. local has files to use
	// instead of modules. If it is nil, no modules are loaded.
	Modules func(local map[string]string) (kubewarden.Loader, error)
	// Env returns the CEL environment of a minor release. If it is nil, that of pkg/mapd is used.
	Env func(minor string) (*cel.Env, error)
	// Verbose keeps the Trace of cases that pass, too.
	Verbose bool
	// Orders bounds the other orders of policies that are run for a case; 0: none are.
	Orders int
}

// Status is how a case ended.
type Status string

// The statuses of cases.
const (
	Passed  Status = "pass"
	Failed  Status = "fail"
	Skipped Status = "skip"
	// Broken: the case could not be run.
	Broken Status = "error"
)

// Outcome is what a case gave.
type Outcome struct {
	Suite  string // the file
	Name   string
	Line   int
	Status Status
	// Message is the reason why a case failed, was skipped or could not be run. Its first line is
	// a summary.
	Message string
	// Diff has the fields in which the result differs from what was expected.
	Diff []report.Change
	// Trace says what each policy did. Without Options.Verbose only failures have it.
	Trace    string
	Duration time.Duration
	// Orders is the result of running other orders of the policies; nil without Options.Orders.
	Orders *ordercheck.Result

	unit   *unit
	result *mapd.Result // of a failure
}

// DiffText returns Diff as text, "" if there is none.
func (o *Outcome) DiffText(colour bool) string {
	if len(o.Diff) == 0 {
		return ""
	}
	var b strings.Builder
	_ = report.WriteDiff(&b, "", o.Diff, report.Colour(colour)) // a Builder takes everything
	_, text, _ := strings.Cut(b.String(), "\n")
	return text
}

// Results are what suites gave.
type Results struct {
	Outcomes []*Outcome
	// Errs are the errors of suites and their policies. Cases of these suites did not run.
	// Uncompiled: policies do not compile or validate. Unread: something could not be read.
	Errs               []error
	Uncompiled, Unread bool
	// Focused: cases without focus were left out.
	Focused bool
	// Empty are the files of suites that have no cases. Options.Run leaves it nil.
	Empty []string
	// Loaded are the policies that ran, by suite, for coverage.
	Loaded []Loaded
}

// Loaded is a set of policies that cases of a suite ran on.
type Loaded struct {
	Policies  *mapd.Policies
	Documents []*mapd.Document
	// Counter counted the decisions.
	Counter *coverage.Counter
}

// Count returns how many outcomes have a status.
func (r *Results) Count(s Status) (n int) {
	for _, o := range r.Outcomes {
		if o.Status == s {
			n++
		}
	}
	return n
}

// fails counts an error about a suite.
func (r *Results) fails(errs []error) {
	r.Errs = append(r.Errs, errs...)
	for _, err := range errs {
		var refused *mapd.LoadError
		if errors.As(err, &refused) && !refused.Unreadable {
			r.Uncompiled = true
		} else {
			r.Unread = true
		}
	}
}

// caseTime bounds the time that policies may take for one case. An API server waits for a webhook
// for at most 30 s.
const caseTime = 10 * time.Second

// Run reads the suites of files and runs their cases, several concurrently. The outcomes are in
// the order of files and cases.
func Run(ctx context.Context, files []string, opts Options) *Results {
	var suites []*Suite
	out := &Results{}
	for _, file := range files {
		read, errs := Read(file)
		suites = append(suites, read...)
		out.fails(errs)
	}
	return run(ctx, suites, opts, out)
}

func run(ctx context.Context, suites []*Suite, opts Options, out *Results) *Results {
	var units []*unit
	for _, s := range suites {
		focus := slices.ContainsFunc(s.units, func(u *unit) bool { return u.spec.Focus })
		out.Focused = out.Focused || focus
		if len(s.units) == 0 && !s.given && opts.Run == nil {
			out.Empty = append(out.Empty, s.File)
		}
		for _, u := range s.units {
			if (focus && !u.spec.Focus) || (opts.Run != nil && !opts.Run.MatchString(s.File+"/"+u.name)) {
				continue
			}
			units = append(units, u)
		}
	}
	all := make([]*loadedSuite, len(suites))
	of := map[*Suite]*loadedSuite{}
	for i, s := range suites {
		all[i] = &loadedSuite{suite: s, opts: &opts, loads: map[string]*load{}}
		of[s] = all[i]
	}
	each(len(all), opts.Parallel, func(i int) {
		h := all[i]
		if slices.ContainsFunc(units, func(u *unit) bool { return u.suite == h.suite && u.skip == "" }) {
			h.read()
		}
	})
	for _, h := range all {
		out.fails(h.errs)
	}
	outcomes := make([]*Outcome, len(units))
	each(len(units), opts.Parallel, func(i int) {
		u := units[i]
		outcomes[i] = of[u.suite].run(ctx, u)
	})
	for _, o := range outcomes {
		if o != nil {
			out.Outcomes = append(out.Outcomes, o)
		}
	}
	for _, h := range all {
		out.Loaded = append(out.Loaded, h.loaded()...)
	}
	return out
}

// each calls f for 0 to n-1, with at most limit calls at once; a limit of 0 is the number of
// cores.
func each(n, limit int, f func(int)) {
	if limit == 0 || n == 1 {
		if n > 0 {
			parallel.Each(n, f)
		}
		return
	}
	var next atomic.Int64
	var workers sync.WaitGroup
	for range min(limit, n) {
		workers.Go(func() {
			for i := int(next.Add(1) - 1); i < n; i = int(next.Add(1) - 1) {
				f(i)
			}
		})
	}
	workers.Wait()
}

// loadedSuite has the policies of a suite. They are compiled once, and loaded for each set of
// further documents that cases have.
type loadedSuite struct {
	suite    *Suite
	opts     *Options
	docs     []*mapd.Document
	loader   kubewarden.Loader
	resolver engine.Resolver
	env      *cel.Env
	errs     []error
	first    *mapd.Policies // without further documents

	mu    sync.Mutex
	loads map[string]*load
	order []*load
}

// load has the policies for one set of further documents: the result of one call of mapd.Load.
type load struct {
	once     sync.Once
	docs     []*mapd.Document
	policies *mapd.Policies
	err      error

	counter coverage.Counter
}

// read reads what all cases of the suite share, and compiles it.
func (h *loadedSuite) read() {
	s := h.suite
	dec := &decoder{doc: s.doc}
	h.docs = slices.Clone(s.docs)
	for i, name := range s.Policies {
		if s.given {
			break
		}
		h.docs = append(h.docs, s.policyFiles(dec, fmt.Sprintf("policies[%d]", i), name)...)
	}
	for i, src := range s.Context {
		h.docs = append(h.docs, s.several(dec, fmt.Sprintf("context[%d]", i), src)...)
	}
	fail := func(path string, err error) {
		dec.errs = append(dec.errs, s.doc.ErrorAt(path, fmt.Errorf("%s: %w", path, err)))
	}
	h.resolver = externaldata.Offline("external: FILE of the suite has recorded answers")
	if s.External != "" {
		data, err := manifest.ReadFile(s.near(s.External), manifest.MaxFile)
		if err == nil {
			h.resolver, err = externaldata.ReadAnswers(s.near(s.External), data)
		}
		if err != nil {
			fail("external", err)
		}
	}
	if h.opts.Modules != nil {
		local := map[string]string{}
		for module, file := range s.Modules {
			local[module] = s.near(file)
		}
		var err error
		if h.loader, err = h.opts.Modules(local); err != nil {
			fail("modules", err)
		}
	}
	if h.opts.Env != nil {
		var err error
		if h.env, err = h.opts.Env(s.Kubernetes); err != nil {
			fail("kubernetes", err)
		}
	}
	if h.errs = dec.errs; len(h.errs) > 0 {
		return
	}
	l := h.load(nil)
	if h.first = l.policies; l.err != nil {
		h.errs = []error{l.err}
	} else if l.policies.Len() == 0 {
		h.errs = []error{s.doc.ErrorAt("policies", errors.New("policies: there is no policy in these files"))}
	}
}

// policyFiles reads the documents of a file, a directory or a glob. It skips suites in a
// directory.
func (s *Suite) policyFiles(d *decoder, path, name string) (docs []*mapd.Document) {
	where := s.near(name)
	paths := []string{where}
	if strings.ContainsAny(name, "*?[") {
		var err error
		if paths, err = filepath.Glob(where); err != nil || len(paths) == 0 {
			d.fail(path, "%s: no file matches %s", path, where)
			return nil
		}
	}
	files, _, err := manifest.Files(paths, false)
	if err != nil {
		d.fail(path, "%s: %w", path, err)
		return nil
	}
	for _, file := range files {
		read, errs := documents(file)
		d.errs = append(d.errs, errs...)
		for _, doc := range read {
			if u := doc.Object(); u.GetAPIVersion() != APIVersion {
				docs = append(docs, doc)
			}
		}
	}
	return docs
}

// load returns the load for further documents. It calls mapd.Load only once for the same
// documents.
func (h *loadedSuite) load(more []*mapd.Document) *load {
	var key bytes.Buffer
	for _, d := range more {
		fmt.Fprintf(&key, "%s\x00%s\x00", d.Where(), d.Text())
	}
	h.mu.Lock()
	l := h.loads[key.String()]
	if l == nil {
		l = &load{docs: slices.Concat(h.docs, more)}
		h.loads[key.String()] = l
		h.order = append(h.order, l)
	}
	h.mu.Unlock()
	l.once.Do(func() { l.policies, l.err = h.compile(l.docs, h.first) })
	return l
}

// compile loads documents. It reuses compiled policies of like.
func (h *loadedSuite) compile(docs []*mapd.Document, like *mapd.Policies) (*mapd.Policies, error) {
	return mapd.Load(mapd.Options{
		Kubernetes: h.suite.Kubernetes, Namespace: h.suite.Namespace, Unbound: h.suite.Unbound, Enforce: h.suite.Mode == "enforce", Modules: h.loader,
		ToolOptions: mapd.ToolOptions{
			Like: like, Context: h.suite.beside, Documents: docs, Env: h.env, Resolver: h.resolver, Brief: !h.opts.Verbose,
			Provider: func(u *unstructured.Unstructured) error { _, err := externaldata.DecodeProvider(u); return err },
		},
	})
}

func (h *loadedSuite) loaded() (all []Loaded) {
	for _, l := range h.order {
		if l.policies != nil {
			all = append(all, Loaded{l.policies, l.docs, &l.counter})
		}
	}
	return all
}

// run runs one request as often as Options.Count says. It returns nil if the suite could not be
// loaded, which is reported once for the suite.
func (h *loadedSuite) run(ctx context.Context, u *unit) *Outcome {
	o := &Outcome{Suite: u.suite.File, Name: u.name, Line: u.line, Status: Skipped, Message: u.skip, unit: u}
	if u.skip != "" {
		return o
	}
	if len(h.errs) > 0 {
		return nil
	}
	began := time.Now()
	defer func() { o.Duration = time.Since(began) }()
	l := h.load(u.context)
	if l.err != nil {
		o.Status, o.Message = Broken, l.err.Error()
		return o
	}
	if u.claim != nil {
		if why, _ := u.claim.unconverted(l.policies); why != "" {
			o.Message = "tests a rule that is not converted: " + why
			return o
		}
	}
	first := h.once(ctx, l.policies, u, o)
	if first != nil && h.opts.Env != nil {
		l.counter.Count(first.Decision)
	}
	for n := 2; n <= h.opts.Count && o.Status == Passed; n++ {
		if r := h.once(ctx, l.policies, u, o); r != nil && !same(first, r) {
			o.Status, o.Message = Failed, fmt.Sprintf("run %d gives another result than the first one", n)
		}
	}
	if first != nil && h.opts.Orders > 0 {
		h.reorder(ctx, l.policies, first, o)
	}
	switch {
	case first == nil || o.Status != Failed && !h.opts.Verbose:
		return o
	case o.Status != Failed:
		o.Trace = first.Summary()
		return o
	}
	observed, err := first.Observe(ctx)
	if err != nil {
		o.Status, o.Message = Broken, err.Error()
		return o
	}
	o.result, o.Trace = observed, observed.TraceText(false)
	if len(observed.Decision.Steps) == 0 {
		o.Trace += whyNot(ctx, observed)
	}
	return o
}

// reorder runs the policies in other orders. The case fails if a result differs.
func (h *loadedSuite) reorder(ctx context.Context, policies *mapd.Policies, first *mapd.Result, o *Outcome) {
	found, err := ordercheck.Check(ctx, policies, first.Request, h.opts.Orders)
	if err != nil {
		o.Status, o.Message = Broken, err.Error()
		return
	}
	o.Orders = found
	for i := range found.Differences {
		o.Status = Failed
		o.Message = strings.TrimPrefix(o.Message+"\n"+strings.TrimSuffix(found.Differences[i].Text(), "\n"), "\n")
	}
}

// maxReasons bounds the reasons why no policy matched that a message has.
const maxReasons = 3

// whyNot returns lines with reasons why policies did not match the request.
func whyNot(ctx context.Context, r *mapd.Result) (text string) {
	n := 0
	for reason := range r.WhyNot(ctx) {
		if reason.Near && n < maxReasons {
			text += "  " + report.Line(reason.Line()) + "\n"
			n++
		}
	}
	return text
}

// same reports whether two results are equal.
func same(a, b *mapd.Result) bool {
	return a.Refusal() == b.Refusal() && tree.Equal(a.Object(), b.Object())
}

// once runs a request once. It returns nil if there is no result, and then sets the outcome.
func (h *loadedSuite) once(ctx context.Context, policies *mapd.Policies, u *unit, o *Outcome) *mapd.Result {
	broken := func(err error) *mapd.Result {
		o.Status, o.Message = Broken, err.Error()
		return nil
	}
	if ctx.Err() != nil {
		return broken(context.Cause(ctx))
	}
	opts := mapd.RequestOptions{
		Operation: admissionv1.Operation(u.spec.Operation), Subresource: u.spec.Subresource, DryRun: u.spec.DryRun, Namespace: u.spec.Namespace,
	}
	if u.spec.Time != "" {
		var err error
		if opts.Time, err = time.Parse(time.RFC3339, u.spec.Time); err != nil {
			return broken(fmt.Errorf("time: %s: must be a time with a zone, such as 2027-01-31T00:00:00Z", u.spec.Time))
		}
	}
	if who := u.spec.User; who != nil {
		opts.User = authenticationv1.UserInfo{Username: who.Name, UID: who.UID, Groups: who.Groups}
		for k, v := range who.Extra {
			if opts.User.Extra == nil {
				opts.User.Extra = map[string]authenticationv1.ExtraValue{}
			}
			opts.User.Extra[k] = v
		}
	}
	if u.old != nil {
		old, errs := policies.Objects("old", func(yield func(*mapd.Document, error) bool) { yield(u.old, nil) })
		if len(errs) > 0 {
			return broken(errs[0])
		}
		opts.Old = old
	}
	req, err := policies.Request(u.object, opts)
	if err != nil {
		return broken(err)
	}
	admitting, cancel := context.WithTimeout(ctx, caseTime)
	defer cancel()
	r := policies.Admit(admitting, req)
	if admitting.Err() != nil && r.Denied() && r.Decision.Status.Code == http.StatusGatewayTimeout {
		return broken(fmt.Errorf("the policies took more than %s", caseTime))
	}
	o.Status, o.Message, o.Diff = Passed, "", nil
	var want map[string]any
	if u.want != nil {
		want = u.want.Object().Object
	}
	if u.claim != nil {
		_, reorders := u.claim.unconverted(policies)
		if w := u.claim.of(r, want, reorders); w != nil {
			o.Status, o.Message, o.Diff = Failed, w.Message, shown(r, w.Changes)
		}
		return r
	}
	if u.spec.Expect == nil {
		o.Status, o.Message, o.Diff = Failed, "the case has no expect; --update writes what comes out", shown(r, cases.AsReport(r.Diff()))
		return r
	}
	j, err := cases.NewJudge(u.spec.Expect)
	if err != nil {
		return broken(err)
	}
	if w := j.Of(r, want); w != nil {
		o.Status, o.Message, o.Diff = Failed, w.Message, shown(r, w.Changes)
	}
	return r
}

// shown returns changes without the values of Secrets, because the output of tests ends up in
// logs.
func shown(r *mapd.Result, changes []report.Change) []report.Change {
	kind := r.Request.Admission.Kind
	return report.Hide(kind.Group, kind.Kind, changes)
}

// where returns "FILE:LINE" of an outcome.
func (o *Outcome) where() string { return fmt.Sprintf("%s:%d", cmp.Or(o.Suite, "-"), o.Line) }
