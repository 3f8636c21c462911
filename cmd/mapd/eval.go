package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	admissionv1 "k8s.io/api/admission/v1"

	"github.com/mapd-project/mapd/internal/defaults"
	"github.com/mapd-project/mapd/internal/manifest"
	"github.com/mapd-project/mapd/internal/report"
	"github.com/mapd-project/mapd/internal/snapshot"
	"github.com/mapd-project/mapd/pkg/engine"
)

// evalFlags are the flags of eval as they were given. Other commands that take
// policies and objects have most of them.
type evalFlags struct {
	command         string // for errors
	policies, files []string
	recursive       bool
	output          string
	operation       string
	old             string
	subresource     string
	dryRun          bool
	user            string
	groups          []string
	namespace       string
	kubernetes      string
	unbound         bool
	raw             bool
}

const evalLong = `Run policies on objects and print what becomes of them.

Objects come out in the order in which they went in. What no policy touched is
printed as it was, byte by byte; what was changed keeps its comments and the
order of its keys. A denied object is not printed. Standard output is data
only: what happened, and what had to be simulated, is told on standard error.

Policies do nothing without a binding, as in a cluster; --unbound is for trying
them out.

Gatekeeper's mutators (Assign, AssignMetadata, ModifySet, AssignImage) run after
the policies, as Gatekeeper runs them: in its order, until nothing changes.

Output formats:
  yaml    the objects (default)
  json    the objects
  patch   for each object one line: the RFC 6902 patch, [] if there is none
  diff    for each changed object the fields that differ
  review  for each object one line: an AdmissionReview with the response
  name    the names of the changed objects, as kubectl writes them

Exit codes:
  0  done
  1  an object was denied
  2  wrong usage, or input that cannot be read
  3  a policy does not compile or validate
  5  some inputs failed, the others were done (also if another was denied)`

func newEval(s streams) *cobra.Command {
	f := evalFlags{command: "eval"}
	cmd := &cobra.Command{
		Use:   "eval -p PATH... -f PATH...",
		Short: "Run policies on objects and print what becomes of them",
		Long:  evalLong,
		Example: `  mapd eval -p policies/ -f deployment.yaml -o diff
  kustomize build . | mapd eval -p policies/ -f - | kubectl apply -f -`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return eval(cmd.Context(), s, &f)
		},
	}
	fl := cmd.Flags()
	fl.SortFlags = false
	f.addFiles(cmd)
	fl.StringVarP(&f.output, "output", "o", "yaml", "yaml, json, patch, diff, review or name")
	f.addRequest(cmd)
	return cmd
}

// addFiles adds the flags for what is read.
func (f *evalFlags) addFiles(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringArrayVarP(&f.policies, "policies", "p", nil, "policies, bindings, Gatekeeper's mutators and Config, params, CRDs, Namespaces and RBAC, mixed: file, directory or - ; repeatable")
	fl.StringArrayVarP(&f.files, "filename", "f", nil, "the objects: file, directory or - ; a List is opened, an AdmissionReview is a full request; repeatable")
	fl.BoolVarP(&f.recursive, "recursive", "R", false, "read directories recursively")
}

// addRequest adds the flags for what is asked of the policies.
func (f *evalFlags) addRequest(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringVar(&f.operation, "operation", "", "create, update or connect (default create, or update with --old)")
	fl.StringVar(&f.old, "old", "", "file with the objects as they are before an update")
	fl.StringVar(&f.subresource, "subresource", "", "the subresource that is requested, such as status")
	fl.BoolVar(&f.dryRun, "dry-run", false, "set request.dryRun")
	fl.StringVar(&f.user, "user", "", "who asks (default kubernetes-admin of the group system:masters)")
	fl.StringArrayVar(&f.groups, "group", nil, "a group of the user; repeatable")
	fl.StringVarP(&f.namespace, "namespace", "n", snapshot.DefaultNamespace, "the namespace of namespaced objects that name none")
	fl.StringVar(&f.kubernetes, "kubernetes", "", "the minor whose CEL libraries are there, from 1.32 on (default the newest known)")
	fl.BoolVar(&f.unbound, "unbound", false, "run policies that have no binding as if bound to everything")
	fl.BoolVar(&f.raw, "raw", false, "take the objects as they are: without schemas and without a server's defaults")
}

var outputs = []string{"yaml", "json", "patch", "diff", "review", "name"}

// usagef is usagef of the command.
func (f *evalFlags) usagef(format string, args ...any) error {
	return usagef(f.command+": "+format, args...)
}

// check finds wrong usage before anything is read.
func (f *evalFlags) check(outputs []string) error {
	switch {
	case len(f.policies) == 0:
		return f.usagef("no policies; give them with -p")
	case len(f.files) == 0:
		return f.usagef("no objects; give them with -f")
	case !slices.Contains(outputs, f.output):
		return f.usagef("-o %s: must be one of %s", f.output, strings.Join(outputs, ", "))
	}
	stdin := 0
	for _, p := range append(append([]string{f.old}, f.policies...), f.files...) {
		if p == manifest.Stdin {
			stdin++
		}
	}
	if stdin > 1 {
		return f.usagef("standard input (-) can be read only once")
	}
	switch strings.ToLower(f.operation) {
	case "":
		f.operation = "create"
		if f.old != "" {
			f.operation = "update"
		}
	case "create", "connect":
		if f.old != "" {
			return f.usagef("--old is for --operation update")
		}
	case "update":
		if f.old == "" {
			return f.usagef("--operation update needs the objects before it: --old FILE")
		}
	default:
		return f.usagef("--operation %s: must be create, update or connect", f.operation)
	}
	f.operation = strings.ToUpper(f.operation)
	if f.namespace == "" {
		f.namespace = snapshot.DefaultNamespace // as with kubectl
	}
	return nil
}

func eval(ctx context.Context, s streams, f *evalFlags) error {
	if ctx == nil {
		ctx = context.Background()
	}
	if err := f.check(outputs); err != nil {
		return err
	}
	e, err := newEvaluation(s, f, snapshot.Options{Trace: true})
	if err != nil {
		return err
	}
	defer e.notes.done()
	for d, err := range manifest.Read(e.files, s.in) {
		if err := e.next(ctx, d, err); err != nil {
			return err
		}
	}
	e.noteSimulated()
	return e.verdict()
}

// newEvaluation reads all but the objects. What users should know of it, and can
// correct, is told.
func newEvaluation(s streams, f *evalFlags, opts snapshot.Options) (*evaluation, error) {
	start := time.Now()
	env, err := environment(f.kubernetes)
	if err != nil {
		return nil, err
	}
	made := time.Since(start)
	files, err := manifest.Files(f.files, f.recursive)
	if err != nil {
		return nil, &codedError{exitUsage, err}
	}
	opts.Env, opts.Unbound, opts.Namespace = env, f.unbound, f.namespace
	l, errs, code := load(f.policies, f.recursive, s.in, opts)
	if len(errs) > 0 {
		printErrors(s.err, errs)
		return nil, &codedError{code: code}
	}
	if len(l.Policies) == 0 && len(l.Mutators) == 0 {
		return nil, f.usagef("no policies in %s", strings.Join(f.policies, ", "))
	}
	l.compiled += made
	e := &evaluation{
		flags: f, files: files, policies: l, engine: l.Engine(),
		out: newPrinter(s.out, f.output), notes: newNotes(s.err),
	}
	if f.old != "" {
		if err := e.readOld(s); err != nil {
			return nil, err
		}
	}
	e.noteBindings()
	e.noteMutators()
	return e, nil
}

// verdict is what the objects together come to.
func (e *evaluation) verdict() error {
	if e.objects == 0 && !e.failed && !e.unreadable {
		return e.flags.usagef("no objects in %s", strings.Join(e.flags.files, ", "))
	}
	switch {
	case e.unreadable, e.failed && e.objects == 0:
		// Some inputs failing is another thing than none that can be read.
		return &codedError{code: exitUsage}
	case e.failed:
		return &codedError{code: exitPartial}
	case e.denied:
		return &codedError{code: exitDenied}
	}
	return nil
}

// evaluation is one run of eval.
type evaluation struct {
	flags                      *evalFlags
	files                      []string // of the objects
	policies                   *loaded
	engine                     *engine.Engine
	old                        map[objectID]*manifest.Document
	out                        *printer
	notes                      *notes
	objects                    int
	denied, failed, unreadable bool
}

// next deals with one document. Its error ends the run: nobody reads what is
// written any more.
func (e *evaluation) next(ctx context.Context, d *manifest.Document, err error) error {
	if err == nil && d.Object == nil {
		return e.out.comments(d)
	}
	sub := e.take(d, err)
	if sub == nil {
		return nil
	}
	decision := e.engine.Admit(ctx, sub.request)
	e.notes.say("%s", report.Summary(sub.name, decision, e.keys))
	e.noteDefaults(sub, decision)
	if decision.Status != nil {
		e.denied = true
		e.notes.say("%s: %s\n", d.Where(), refusal(decision.Status))
	}
	return e.show(sub, decision)
}

// noteDefaults says which fields of a changed object a server then fills in: what
// a policy removed, and what has its default from a field that a policy set. That
// what policies add has the constants of its kind goes without saying.
func (e *evaluation) noteDefaults(s *subject, d *engine.Decision) {
	if !d.Changed || d.Status != nil || s.kind == nil || s.request.Object == nil {
		return
	}
	keys := report.SchemaKeys(s.kind)
	before, after := s.request.Object.Object, d.Object.Object
	// A review need not have all defaults; what it lacked before is no news.
	skip := map[string]bool{}
	for _, c := range filledIn(before, keys) {
		skip[c.Path] = true
	}
	var added []string
	for _, c := range report.Diff(before, after, keys) {
		if c.Before == nil {
			added = append(added, c.Path)
		}
	}
	var fields []string
	for _, c := range filledIn(after, keys) {
		within := func(path string) bool {
			rest, ok := strings.CutPrefix(c.Path, path)
			return ok && rest != "" && (rest[0] == '.' || rest[0] == '[')
		}
		if !skip[c.Path] && (reserves(c.Path) || !slices.ContainsFunc(added, within)) {
			fields = append(fields, c.Path)
		}
	}
	if len(fields) > 0 {
		e.notes.say("note: %s: a server fills in after the policies: %s\n", report.Line(s.name), report.Line(strings.Join(fields, ", ")))
	}
}

// filledIn is what a server fills into an object.
func filledIn(obj map[string]any, keys report.Keys) []report.Change {
	out, _ := defaults.Apply(obj)
	return report.Diff(obj, out, keys)
}

// reserves tells whether a field is of the requests of a container, which a Pod
// has from its limits: what it reserves is worth telling of an added one as well.
func reserves(path string) bool { return strings.Contains(path, ".resources.requests") }

// show prints what became of an object. Its error ends the run.
func (e *evaluation) show(sub *subject, d *engine.Decision) error {
	var bad unwritable
	switch err := e.out.print(e, sub, d); {
	case errors.As(err, &bad):
		e.failed = true
		e.notes.say("%s\n", render(sub.doc.Errorf("%s: %w", sub.name, bad)))
	case err != nil:
		return &codedError{exitUsage, err}
	}
	return nil
}

// take makes a subject of what was read, nil if it is none; why not is told.
func (e *evaluation) take(d *manifest.Document, err error) *subject {
	var re *manifest.ReadError
	switch {
	case errors.As(err, &re):
		e.unreadable = true
		e.notes.say("%s\n", render(err))
		return nil
	case err != nil:
		e.failed = true
		e.notes.say("%s\n", render(err))
		return nil
	}
	e.objects++
	e.notes.count()
	sub, err := e.subject(d)
	if err != nil {
		e.failed = true
		e.notes.say("%s\n", render(err))
		return nil
	}
	return sub
}

func (e *evaluation) operation() admissionv1.Operation {
	return admissionv1.Operation(e.flags.operation)
}

// noteBindings says once which policies have no effect, and what v1 does not fill
// into bindings.
func (e *evaluation) noteBindings() {
	l := e.policies
	if len(l.Unbound) > 0 {
		if e.flags.unbound {
			e.notes.say("note: no binding, run as if bound to everything (--unbound): %s\n", strings.Join(l.Unbound, ", "))
		} else {
			e.notes.say("note: no binding, so no effect (--unbound runs them): %s\n", strings.Join(l.Unbound, ", "))
		}
	}
	if len(l.Dangling) > 0 {
		e.notes.say("note: bindings whose policy was not given, so no effect: %s\n", strings.Join(l.Dangling, ", "))
	}
	if len(l.UnknownParams) > 0 {
		e.notes.say("note: unknown paramKind, give its CustomResourceDefinition with -p: %s\n", strings.Join(l.UnknownParams, "; "))
	}
	for _, text := range l.Older {
		e.notes.say("note: %s\n", report.Line(text))
	}
}

// noteMutators says once which mutators do not run, and what about the others
// may not be meant.
func (e *evaluation) noteMutators() {
	for _, m := range e.policies.Mutators {
		if !m.Running {
			e.notes.say("note: %s does not run: %s\n", report.Line(m.Mutator.ID()), report.Line(m.Reason))
		}
		for _, n := range m.Notes {
			e.notes.say("note: %s: %s: %s\n", report.Line(m.Mutator.ID()), n.Field, report.Line(n.Message))
		}
	}
}

// noteSimulated says once what was not as in a cluster.
func (e *evaluation) noteSimulated() {
	if names := e.policies.Namespaces.Synthesised(); len(names) > 0 {
		const most = 10
		more := ""
		if len(names) > most {
			more = fmt.Sprintf(" and %d more", len(names)-most)
			names = names[:most]
		}
		e.notes.say("note: Namespaces not given, taken to have only the label kubernetes.io/metadata.name: %s%s\n", strings.Join(names, ", "), more)
	}
	if e.policies.AuthorizerAsked() && !e.policies.HasRBAC {
		e.notes.say("note: no RBAC objects given: every check of a policy's authorizer was answered with no opinion\n")
	}
	if e.out.builtin {
		e.notes.say("note: built-in kinds have the defaults of Kubernetes 1.37; other admission plugins of a server did not run\n")
	}
	if kinds := slices.Sorted(maps.Keys(e.out.undefaulted)); len(kinds) > 0 {
		e.notes.say("note: what a server fills in is not known here for %s\n", strings.Join(kinds, ", "))
	}
}
