//go:build !server

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/mapd-project/mapd/internal/document/manifest"
	"github.com/mapd-project/mapd/internal/output/report"
	"github.com/mapd-project/mapd/internal/words"
	"github.com/mapd-project/mapd/internal/workloads/expansion"
	"github.com/mapd-project/mapd/pkg/engine"
	"github.com/mapd-project/mapd/pkg/explain"
	"github.com/mapd-project/mapd/pkg/mapd"
	"github.com/mapd-project/mapd/pkg/policy"
	"github.com/mapd-project/mapd/pkg/webhook"
)

// evalFlags are the flags of eval as they were given. Other commands that read policies and
// objects share most of them.
type evalFlags struct {
	command         string // for errors
	policies, files []string
	kustomize       []string
	recursive       bool
	fromCluster     evalCluster
	output          string
	operation       string
	old             string
	subresource     string
	dryRun          bool
	time            string
	at              time.Time // parsed from time
	userFlags
	namespace, only string // only: the one object to evaluate
	kubernetes      string
	unbound         bool
	mode            string
	raw             bool
	expand          bool
	explain         bool
	trace           bool
	quiet           bool
	inPlace         bool
	blame           bool
	exitCode        bool
	timeout         time.Duration
	maxAge          time.Duration // largest age of snapshots; 0: any
	orders          ordersFlags
	external        externalFlags
	modules         moduleFlags
	// documents are policies, and inputs objects, that were read before.
	documents []*mapd.Document
	inputs    []manifest.Input
}

const evalLong = `Run policies on objects and print the results.

Objects are printed in the order of the input: unchanged ones byte for byte,
changed ones with their comments and the order of their keys. A denied object is
not printed, so apply the rest only if the exit code is 0. Standard output has
only the results, in the format of -o. Standard error says what each policy did, and
what had to be simulated: other admission plugins and the validation of a server do
not run.

Pass Namespaces, CustomResourceDefinitions, parameters and RBAC objects with -p
too. Except for RBAC objects, those among the objects of -f are used as well, and so
are policies and bindings there; if two have the same name, the one of -p is used, or
else the first. Without -f, standard input is read unless it is a terminal. Policies do
nothing without a binding, as in a cluster; use --unbound to try them out. If no policy
matched an object, standard error says why, for the policies and bindings that come
closest; with --explain it says so for all of them.

Gatekeeper's mutators (Assign, AssignMetadata, ModifySet, AssignImage) run after
the policies, as Gatekeeper runs them: in its order, until nothing changes. Then come
the mutate rules of Kyverno's policies (ClusterPolicy, Policy, MutatingPolicy,
NamespacedMutatingPolicy), as the policies that mapd migrate kyverno makes of them; a
rule that is not converted is named and changes nothing.
Kubewarden's policies (ClusterAdmissionPolicy, AdmissionPolicy) run after those, by
name, and those with "mutating: false" last. Their WebAssembly modules are fetched
when they are loaded; --module takes a file in the place of one. The request files
of kwctl can be given with -f.

With --expand, the objects that a workload creates are evaluated and printed after
it: the Pods of a Deployment, and the Jobs and Pods of a CronJob. They are judged by
ValidatingAdmissionPolicies and Pod Security, too. See mapd expand.

Providers of external data are not asked: --external FILE has their answers, a map
of providers to keys to values, where {error: TEXT} stands for a failure. With
--record FILE, the Providers among the policies are asked for what --external does
not have, and all answers are written to FILE.

Output formats:
  yaml      the objects (default)
  json      the objects
  patch     for each object one line: apiVersion, kind, namespace and name, and the RFC
            6902 patch, [] if there is none, or why it was denied
  diff      for each changed object the fields that differ
  markdown  the same, and what was denied, for a comment on a pull request
  review    for each object one line: an AdmissionReview with the response
  name      the names of the changed objects, as kubectl writes them
  trace.json  for each object one line of JSON: what --trace says, for machines

Exit codes:
  0  done
  1  an object was denied, with --exit-code one would change, or --orders found something
  2  wrong usage, or input that cannot be read
  3  a policy does not compile or validate; one of --from-cluster is left out, with a warning
  4  with --from-cluster: the cluster does not answer or may not be read
  5  some inputs failed, the others were done (also if another was denied)`

func newEval(s streams) *cobra.Command {
	f := evalFlags{command: "eval"}
	cmd := &cobra.Command{
		Use:   "eval [-p PATH...] [-f PATH...] [--from-cluster [KIND/NAME...]]",
		Short: "Run policies on objects and print the results",
		Long:  evalLong,
		Example: `  mapd eval -p policies/ -f deployment.yaml -o diff
  mapd eval -p policies/ -k overlays/prod > out.yaml && kubectl apply -f out.yaml
  mapd eval -p policies/ -f manifests/ --in-place
  mapd eval --from-cluster --explain pod/web -n shop -o name`,
		Args: func(cmd *cobra.Command, args []string) error {
			if f.fromCluster.on {
				return nil
			}
			return noArguments("-p and -f")(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.fromCluster.objects = args; len(args) == 0 {
				f.stdinByDefault(s)
			}
			return eval(cmd.Context(), s, &f)
		},
	}
	fl := cmd.Flags()
	fl.SortFlags = false
	f.addFiles(cmd)
	f.fromCluster.add(cmd)
	choiceVarP(fl, &f.output, "output", "o", "yaml", "", outputs...)
	f.addRequest(cmd)
	fl.BoolVar(&f.explain, "explain", false, "print for every policy and binding that did nothing which of its criteria did not hold")
	fl.BoolVar(&f.trace, "trace", false, "print for every condition, variable and mutation its result, the values that it read and its cost")
	fl.BoolVar(&f.blame, "blame", false, "print the objects as YAML, and behind each field that changed which policy, binding, parameter and mutation did it")
	fl.BoolVar(&f.inPlace, "in-place", false, "write the results into the files that the objects are from; a file stays as it is if one of its objects is denied or fails")
	fl.BoolVarP(&f.quiet, "quiet", "q", false, "print no messages but errors and denials")
	fl.BoolVar(&f.exitCode, "exit-code", false, "exit with 1 if an object would change, as kubectl diff does")
	fl.BoolVar(&f.expand, "expand", false, "also evaluate what workloads create, such as the Pods of a Deployment")
	f.orders.add(fl)
	f.external.add(fl)
	f.external.addRecord(fl)
	return cmd
}

// stdinByDefault makes eval read objects from standard input if nothing else is given and
// standard input is not a terminal.
func (f *evalFlags) stdinByDefault(s streams) {
	if in, ok := s.in.(*os.File); len(f.files)+len(f.kustomize) == 0 && !slices.Contains(f.policies, manifest.Stdin) && (!ok || piped(in)) {
		f.files = []string{manifest.Stdin}
	}
}

// piped reports whether a file is a pipe or a plain file, and neither a terminal nor the
// null device.
func piped(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && (info.Mode()&os.ModeNamedPipe != 0 || info.Mode().IsRegular())
}

// addFiles adds the flags for what is read.
func (f *evalFlags) addFiles(cmd *cobra.Command) {
	fl := cmd.Flags()
	f.addPolicies(cmd)
	fl.StringArrayVarP(&f.files, "filename", "f", nil, "the objects: file, directory or - ; a List is opened, an AdmissionReview or an AdmissionRequest is a full request; repeatable")
	f.addKustomize(cmd)
	recursiveVar(fl, &f.recursive)
}

// addKustomize adds the flag for kustomizations.
func (f *evalFlags) addKustomize(cmd *cobra.Command) {
	cmd.Flags().StringArrayVarP(&f.kustomize, "kustomize", "k", nil, "the objects: what the kustomization in this directory makes; nothing is fetched; repeatable")
}

// addPolicies adds the flag for policies.
func (f *evalFlags) addPolicies(cmd *cobra.Command) {
	cmd.Flags().StringArrayVarP(&f.policies, "policies", "p", nil, "policies, bindings, Gatekeeper's mutators and Config, Kyverno's and Kubewarden's policies, params, CRDs, Namespaces and RBAC, mixed: file, directory or - ; repeatable")
}

// addRequest adds the flags that describe the request.
func (f *evalFlags) addRequest(cmd *cobra.Command) {
	fl := cmd.Flags()
	choiceVar(fl, &f.operation, "operation", "", " (default create, or update with --old)", "create", "update", "connect")
	fl.StringVar(&f.old, "old", "", "file with the objects as they are before an update")
	fl.StringVar(&f.subresource, "subresource", "", "the subresource that is requested, such as status")
	fl.BoolVar(&f.dryRun, "dry-run", false, "set request.dryRun")
	fl.StringVar(&f.time, "time", "", "when the request is made, such as 2027-01-31T00:00:00Z, for exceptions that end (default now)")
	f.addUser(cmd)
	f.addReading(cmd)
}

// userFlags describe the user who makes the request.
type userFlags struct {
	user   string
	groups []string
}

func (f *userFlags) addUser(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringVar(&f.user, "request-user", "", "the user who makes the request (default kubernetes-admin of the group system:masters)")
	fl.StringArrayVar(&f.groups, "request-group", nil, "a group of that user; repeatable")
}

// addReading adds the flags for how policies and objects are decoded.
func (f *evalFlags) addReading(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringVarP(&f.namespace, "namespace", "n", "", "the namespace of namespaced objects that name none (default \"default\"); objects that name another one are refused")
	fl.StringVar(&f.kubernetes, "kubernetes", "", "the minor version of Kubernetes whose CEL libraries are used, from 1.32 on (default 1.37)")
	fl.BoolVar(&f.unbound, "unbound", false, "run policies that have no binding as if bound to everything")
	choiceVar(fl, &f.mode, "mode", modeWritten, ": with written, policies in the mode shadow or warn change nothing; with enforce, all policies run as if enforced; the share of a binding counts with both", modeWritten, modeEnforce)
	fl.BoolVar(&f.raw, "raw", false, "take the objects as they are: without schemas and without a server's defaults")
	fl.DurationVar(&f.timeout, "timeout", 10*time.Second, "how long the policies may take for one object, and for what it creates")
	f.modules.add(cmd)
}

// Values of --mode.
const (
	modeWritten = "written"
	modeEnforce = "enforce"
)

// blameFormat is the output format of --blame.
const blameFormat = "blame"

var outputs = []string{"yaml", "json", "patch", "diff", "markdown", "review", "name", traceFormat}

// usagef returns an error about wrong usage. Its text begins with the name of the command.
func (f *evalFlags) usagef(format string, args ...any) error {
	return usagef(f.command+": "+format, args...)
}

// check returns an error for wrong usage, before anything is read.
func (f *evalFlags) check() error {
	if err := f.checkCluster(); err != nil {
		return err
	}
	given := len(f.files) + len(f.kustomize) + len(f.fromCluster.objects) + len(f.inputs)
	switch {
	case len(f.policies)+len(f.documents) == 0 && given == 0 && !f.expand && !f.fromCluster.on:
		return f.usagef("no policies; give them with -p")
	case given == 0 && f.fromCluster.on:
		return f.usagef("no objects; give them with -f, or name those of the cluster, such as pod/web")
	case given == 0:
		return f.usagef("no objects; give them with -f")
	case f.expand && f.output == "review":
		return f.usagef("-o review: with --expand there are results that no request asked for")
	}
	if f.timeout <= 0 {
		return f.usagef("--timeout %s: must be positive", f.timeout)
	}
	if f.time != "" {
		var err error
		if f.at, err = time.Parse(time.RFC3339, f.time); err != nil {
			return f.usagef("--time %s: must be a time with a zone, such as 2027-01-31T00:00:00Z", f.time)
		}
	}
	if f.trace && f.quiet {
		return f.usagef("--trace writes to standard error, on which -q leaves only errors")
	}
	if err := f.orders.check(); err != nil {
		return f.usagef("%w", err)
	}
	if f.orders.on && f.external.record != "" {
		return f.usagef("--orders does not go with --record")
	}
	if f.blame {
		if f.output != "yaml" {
			return f.usagef("--blame prints YAML; leave -o %s out", f.output)
		}
		f.output = blameFormat
	}
	var err error
	if f.policies, err = paths(f.policies); err != nil {
		return f.usagef("-p: %w", err)
	}
	if f.files, err = paths(f.files); err != nil {
		return f.usagef("-f: %w", err)
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
	switch f.operation {
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
	}
	f.operation = strings.ToUpper(f.operation)
	f.only = f.namespace
	if f.namespace == "" {
		f.namespace = mapd.DefaultNamespace // as with kubectl
	}
	return nil
}

func eval(ctx context.Context, s streams, f *evalFlags) error {
	if err := f.check(); err != nil {
		return err
	}
	e, err := newEvaluation(ctx, s, f, false)
	if err != nil {
		return err
	}
	defer e.notes.done()
	defer e.close()
	if err := e.all(ctx); err != nil {
		return err
	}
	if e.swapped && e.objects > 0 {
		e.notes.warn("all objects (-f) are policies or what they read, and there is no policy with -p; are the two swapped?\n")
	}
	e.noteAssumed()
	e.summarize()
	if err := e.outside.save(); err != nil {
		return err
	}
	return e.outcome()
}

// all evaluates all objects.
func (e *evaluation) all(ctx context.Context) error {
	for _, in := range e.inputs {
		var end func(string)
		if e.inPlace != nil {
			end = e.inPlace.begin()
		}
		for d, err := range readDocuments([]manifest.Input{in}) {
			if err := e.next(ctx, d, err); err != nil {
				return err
			}
		}
		if end != nil {
			end(in.Name)
		}
	}
	return nil
}

// newEvaluation reads everything except the objects, and prints the notes about it. If brief is
// set, steps have no objects, as on a server.
func newEvaluation(ctx context.Context, s streams, f *evalFlags, brief bool) (*evaluation, error) {
	hintKeyboard(s, slices.Concat(f.policies, f.files)...)
	files, skipped, err := manifest.Files(f.files, f.recursive)
	if err != nil {
		return nil, &codedError{exitUsage, err}
	}
	for _, path := range f.files {
		if err := manifest.Unfit(path); err != nil {
			return nil, &codedError{exitUsage, err}
		}
	}
	texts, more, err := readFiles(f.policies, f.recursive, s.in)
	for what, n := range more {
		skipped[what] += n
	}
	if err != nil {
		return nil, &codedError{exitUsage, err}
	}
	if err := checkSnapshots(texts, f.maxAge); err != nil {
		return nil, err
	}
	if f.inPlace {
		if files, err = f.checkInPlace(files); err != nil {
			return nil, err
		}
	}
	outside, err := f.external.open()
	if err != nil {
		return nil, err
	}
	loader, err := f.modules.loader(moduleLog(s.err), limitCommand)
	if err != nil {
		return nil, f.usagef("%w", err)
	}
	inputs, done, err := rereadable(files, s.in)
	if err != nil {
		return nil, &codedError{exitUsage, err}
	}
	made, err := kustomized(f.kustomize)
	if err != nil {
		done()
		return nil, &codedError{exitUsage, err}
	}
	inputs = slices.Concat(inputs, made, f.inputs)
	var live []*mapd.Document
	if f.fromCluster.on {
		var objects []manifest.Input
		if live, objects, err = f.readCluster(ctx, s); err != nil {
			done()
			return nil, err
		}
		inputs = append(inputs, objects...)
	}
	e := &evaluation{
		flags: f, inputs: inputs, files: len(files) + len(texts) + total(skipped), skipped: skipped, close: done, outside: outside, out: newPrinter(s.out, f.output), notes: newNotes(s.err),
	}
	if f.inPlace {
		e.inPlace = &inPlace{evaluation: e}
	} else {
		e.notes.beside(s.out, f.output)
	}
	if err := e.load(s, loader, texts, live, brief); err != nil {
		done()
		return nil, err
	}
	return e, nil
}

// load loads the policies of texts and of a cluster (live), and prints the notes about them.
func (e *evaluation) load(s streams, loader *moduleLoader, texts []mapd.File, live []*mapd.Document, brief bool) error {
	f := e.flags
	e.notes.quiet = f.quiet
	var policies *mapd.Policies
	var err error
	var refused *mapd.LoadError
	for again := true; again; {
		policies, err = mapd.Load(mapd.Options{
			Kubernetes: f.kubernetes, Unbound: f.unbound, Enforce: f.mode == modeEnforce, Namespace: f.namespace, Modules: loader,
			ToolOptions: mapd.ToolOptions{
				Documents: f.documents, Context: append(contextOf(e.inputs, texts, f.documents), live...),
				Brief: brief, Observe: f.trace || f.explain || f.output == traceFormat,
				Resolver: e.outside.resolver, Provider: e.outside.provider, Installation: f.fromCluster.installation,
			},
		}, texts...)
		again = false
		if errors.As(err, &refused) {
			live, again = e.leaveOut(live, refused)
		}
	}
	e.outside.publish()
	e.policies = policies
	switch {
	case refused != nil && err != nil:
		printErrors(s.err, refused.Errs)
		if refused.Unreadable {
			return &codedError{code: exitUsage}
		}
		return &codedError{code: exitPolicy}
	case err != nil:
		return usagef("--kubernetes: %w", err)
	case policies.Len() == 0 && !f.expand:
		return e.noPolicies()
	}
	e.swapped = len(texts) > 0 && len(live)+len(f.documents) == 0 && !hasPolicies(texts) && len(policies.Policies()) > 0 && policies.Mutators()+policies.Kyverno() == 0
	if e.expander, err = e.makeExpander(s, texts); err != nil {
		return err
	}
	if f.old != "" {
		if err := e.readOld(s); err != nil {
			return err
		}
	}
	for _, n := range policies.Notes() {
		switch {
		case n.Kind == mapd.Mistake || n.Kind == mapd.Unconverted:
			e.notes.warn("%s\n", report.Line(n.String()))
		case n.Kind != mapd.OnlyGenerated || !f.expand:
			e.notes.say("note: %s\n", report.Line(noteText(n)))
		}
	}
	e.sayRead()
	e.noteCycles()
	return nil
}

// readOld reads the objects of --old.
func (e *evaluation) readOld(s streams) error {
	files, _, err := manifest.Files([]string{e.flags.old}, e.flags.recursive)
	if err != nil {
		return &codedError{exitUsage, err}
	}
	old, errs := e.policies.Objects(e.flags.old, readDocuments(manifest.Inputs(files, s.in)))
	if len(errs) > 0 {
		printErrors(s.err, errs)
		return &codedError{code: exitUsage}
	}
	if old.Len() == 0 {
		return e.flags.usagef("no objects in %s", e.flags.old)
	}
	e.old = old
	return nil
}

// outcome returns the error with the exit code for all objects together.
func (e *evaluation) outcome() error {
	if e.objects == 0 && !e.failed && !e.unreadable {
		return e.flags.usagef("no objects in %s", strings.Join(slices.Concat(e.flags.files, e.flags.kustomize), ", "))
	}
	switch {
	case e.unreadable, e.failed && e.objects == 0:
		// exitPartial is for some inputs that failed, exitUsage for inputs none of which can be
		// read.
		return &codedError{code: exitUsage}
	case e.failed:
		return &codedError{code: exitPartial}
	case e.denied, e.disordered, e.flags.exitCode && e.given.changed+e.generated.changed > 0:
		return &codedError{code: exitDenied}
	}
	return nil
}

// tally counts objects by their outcome; all others are unchanged.
type tally struct{ all, changed, denied, failed int }

func (t tally) String() string {
	text := fmt.Sprintf("%d changed, %d unchanged, %d denied", t.changed, t.all-t.changed-t.denied-t.failed, t.denied)
	if t.failed > 0 {
		text += fmt.Sprintf(", %d failed", t.failed)
	}
	return text
}

// tallyOf returns the tally that counts an object.
func (e *evaluation) tallyOf(r *mapd.Result) *tally {
	if r.Request.Admission.Source == policy.Generated {
		return &e.generated
	}
	return &e.given
}

// summarize prints the number of objects by outcome, and the policies that matched none of
// them.
func (e *evaluation) summarize() {
	if e.given.all < 2 {
		return
	}
	text := fmt.Sprintf("%d objects: %s", e.given.all, e.given)
	if e.generated.all > 0 {
		text += fmt.Sprintf("; %s: %s", words.Count(e.generated.all, "generated object", "generated objects"), e.generated)
	}
	e.notes.say("%s\n", text)
	if e.flags.output == "markdown" && e.inPlace == nil {
		_ = e.out.totals(text) // the same error of standard output also ends the command
	}
	var unmet []string
	for _, p := range e.policies.Policies() {
		if !e.met[p.Name()] {
			unmet = append(unmet, p.Name())
		}
	}
	if len(unmet) > 0 && e.met != nil {
		slices.Sort(unmet)
		e.notes.say("note: ran for none of these objects (--explain says why): %s\n", report.Line(words.Some(unmet, 10)))
	}
}

// failInput reports an input that failed. It may be an object, or a text that cannot be
// decoded.
func (e *evaluation) failInput(err error) {
	text := render(err)
	e.failed = true
	if e.failing != nil {
		e.failing(err)
	}
	e.notes.fail("%s\n", text)
	if e.flags.output == "markdown" && e.inPlace == nil {
		_ = e.out.failure(text) // the same error of standard output also ends the command
	}
}

// evaluation is one run of eval.
type evaluation struct {
	swapped                    bool // so far, it looks as if the values of -p and -f were exchanged
	flags                      *evalFlags
	inputs                     []manifest.Input // with the objects
	files                      int              // that were read or skipped
	skipped                    manifest.Skipped
	close                      func() // releases what inputs hold
	policies                   *mapd.Policies
	outside                    *outside
	old                        *mapd.Objects       // nil without --old
	expander                   *expansion.Expander // nil without --expand
	inPlace                    *inPlace            // nil without --in-place
	sink                       func(*mapd.Result)  // gets the results instead of out; may be nil
	also                       func(*mapd.Result)  // is called with each result; may be nil
	failing                    func(error)         // is called for each input that failed; may be nil
	out                        *printer
	notes                      *notes
	objects                    int
	given, generated           tally
	met                        map[string]bool // policies that ran on an object, enforced or not
	denied, failed, unreadable bool
	disordered                 bool // --orders found a difference
}

// next evaluates one document. Its error ends the run, since standard output can no longer be
// written to.
func (e *evaluation) next(ctx context.Context, d *mapd.Document, err error) error {
	if err == nil && d.Object() == nil {
		if e.inPlace != nil {
			return nil
		}
		return e.out.comments(d)
	}
	req := e.take(d, err)
	if req == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, e.flags.timeout)
	defer cancel()
	r := e.admit(ctx, req)
	if e.late(ctx, r) {
		return nil
	}
	e.tell(r)
	e.whyNot(ctx, r)
	if !e.complete(r) {
		return nil
	}
	e.reorder(ctx, r)
	if err := e.show(r); err != nil {
		return err
	}
	for _, g := range e.expand(ctx, r) {
		if err := e.show(g); err != nil {
			return err
		}
	}
	return nil
}

// late reports whether the policies exceeded the time limit for an object, and prints a message
// if so.
func (e *evaluation) late(ctx context.Context, r *mapd.Result) bool {
	late := errors.Is(ctx.Err(), context.DeadlineExceeded) && r.Denied() && r.Decision.Status.Code == http.StatusGatewayTimeout
	if late {
		t := e.tallyOf(r)
		if t == &e.generated {
			t.all++
		}
		t.failed++
		e.failInput(r.Request.Document().Errorf("%s: the policies took more than %s (--timeout)", r.Request.Name(), e.flags.timeout))
	}
	return late
}

// tell prints to standard error what the policies did to an object.
func (e *evaluation) tell(r *mapd.Result) {
	e.swapped = e.swapped && r.Request.Document().IsContext()
	if r.Denied() && !e.notes.quiet {
		e.notes.fail("%s", e.summary(r))
	} else {
		e.notes.say("%s", e.summary(r))
	}
	for _, w := range r.Warnings() {
		e.notes.warn("%s\n", report.Line(w))
	}
	if fields := r.FilledIn(); len(fields) > 0 {
		e.notes.say("note: %s: a server fills in after the policies: %s\n", report.Line(r.Request.Name()), report.Line(strings.Join(fields, ", ")))
	}
	t := e.tallyOf(r)
	if t == &e.generated {
		t.all++
	}
	if e.met == nil {
		e.met = map[string]bool{}
	}
	for i := range r.Decision.Steps {
		if s := &r.Decision.Steps[i]; s.Outcome != engine.Skipped {
			e.met[s.Policy] = true
		}
	}
	for _, record := range r.Decision.Stages {
		for i := range record.Shadows {
			e.met[record.Shadows[i].Policy] = true
		}
	}
	switch {
	case r.Denied():
		t.denied++
	case r.Changed():
		t.changed++
	}
	if r.Denied() {
		e.denied = true
		e.notes.fail("%s: %s\n", r.Request.Document().Where(), report.Excerpts(r.Refusal()))
	}
}

const (
	// maxReasons is how many reasons are printed for an object without --explain.
	maxReasons = 3
	// maxExplained is the largest number of policies for which reasons are looked for.
	maxExplained = 1000
)

// whyNot prints why policies did nothing with an object: with --explain all reasons, otherwise,
// if no policy matched, a few for policies whose author may have expected a match.
func (e *evaluation) whyNot(ctx context.Context, r *mapd.Result) {
	all := e.flags.explain
	if all || !e.many() {
		for _, reason := range explain.ExceptedBy(r.Decision) {
			e.notes.say("  %s\n", report.Line(reason.String()))
		}
	}
	matched := len(r.Decision.Steps) > 0 || slices.ContainsFunc(r.Decision.Stages, func(r engine.Record) bool { return len(r.Shadows) > 0 })
	if !all && (matched || e.many()) {
		return
	}
	said, more := 0, 0
	for reason := range r.WhyNot(ctx) {
		switch {
		case reason.Excepted: // said above
		case !all && (!reason.Near || reason.Generated && e.flags.expand):
		case !all && said == maxReasons:
			more++
		default:
			said++
			text := reason.String()
			if reason.Generated && !e.flags.expand {
				text += " (--expand)"
			}
			e.notes.say("  %s\n", report.Line("not met: "+text))
		}
	}
	if more > 0 {
		e.notes.say("  and %d more (--explain)\n", more)
	}
}

// complete reports fields that a server requires and that the object lacks. It returns false if
// the name is missing, since the object cannot be stored without it.
func (e *evaluation) complete(r *mapd.Result) bool {
	doc, name := r.Request.Document(), report.Line(r.Request.Name())
	for _, path := range r.Missing() {
		if path == "metadata.name" {
			e.fallBack(r)
			e.failInput(doc.ErrorAt("metadata", fmt.Errorf("%s: metadata.name: Required value: name or generateName is required", r.Request.Name())))
			return false
		}
		e.notes.warn("%s: a server refuses it: %s is required and empty\n", name, report.Line(path))
	}
	return true
}

// fallBack changes the outcome of an object, which tell has counted, to failed.
func (e *evaluation) fallBack(r *mapd.Result) {
	t := e.tallyOf(r)
	switch {
	case r.Denied():
		t.denied--
	case r.Changed():
		t.changed--
	}
	t.failed++
}

// show prints the result for an object. Its error ends the run.
func (e *evaluation) show(r *mapd.Result) error {
	if e.also != nil {
		e.also(r)
	}
	if e.sink != nil {
		e.sink(r)
		return nil
	}
	if e.inPlace != nil {
		e.inPlace.take(r)
		if e.flags.output == "yaml" {
			e.out.noteDefaults(r)
			return nil
		}
	}
	var bad unwritable
	switch err := e.out.print(r); {
	case errors.As(err, &bad):
		e.fallBack(r)
		e.failInput(r.Request.Document().Errorf("%s: %w", r.Request.Name(), bad))
	case err != nil:
		return &codedError{exitUsage, err}
	}
	return nil
}

// take returns the request for a document, or nil after reporting why there is none.
func (e *evaluation) take(d *mapd.Document, err error) *mapd.Request {
	var unread *mapd.ReadError
	switch {
	case errors.As(err, &unread):
		e.given.all++
		e.given.failed++
		failed := e.failed
		e.failInput(err)
		e.failed, e.unreadable = failed, true
		return nil
	case err != nil:
		e.given.all++
		e.given.failed++
		e.failInput(err)
		return nil
	}
	e.objects++
	e.given.all++
	e.notes.count()
	req, err := e.request(d)
	if err != nil {
		e.given.failed++
		e.failInput(err)
		return nil
	}
	return req
}

// request returns the request for a document. For a review it is the request of the review.
func (e *evaluation) request(d *mapd.Document) (*mapd.Request, error) {
	f := e.flags
	opts := mapd.RequestOptions{
		Operation: admissionv1.Operation(f.operation), Old: e.old, Subresource: f.subresource, DryRun: f.dryRun, Time: f.at,
		User: authenticationv1.UserInfo{Username: f.user, Groups: f.groups}, Raw: f.raw,
		Note: func(n mapd.Note) { e.notes.once("note: %s\n", noteText(n)) },
	}
	if gvk := d.Object().GroupVersionKind(); gvk.Group != admissionv1.GroupName || gvk.Kind != "AdmissionReview" {
		if ns := d.Object().GetNamespace(); f.only != "" && ns != "" && ns != f.only {
			return nil, d.ErrorAt("metadata.namespace", fmt.Errorf("%s: its namespace is not that of --namespace, %s", d.Name(), f.only))
		}
		return e.policies.Request(d, opts)
	}
	data, err := json.Marshal(d.Object().Object)
	if err != nil {
		return nil, d.Errorf("%w", err)
	}
	admission, err := webhook.DecodeReview(data)
	if err != nil {
		return nil, d.Errorf("AdmissionReview: %w", err)
	}
	return e.policies.Review(d, admission, opts)
}

// noteText returns the text of a note, with the flags that may help.
func noteText(n mapd.Note) string {
	about := strings.Join(n.About, ", ")
	switch n.Kind {
	case mapd.Unbound:
		return "no binding, so no effect (--unbound runs them): " + about
	case mapd.BoundToAll:
		return "no binding, run as if bound to everything (--unbound): " + about
	case mapd.UnknownParams:
		return "unknown paramKind, give its CustomResourceDefinition with -p: " + strings.Join(n.About, "; ")
	case mapd.OnlyGenerated:
		return about + " does not run: match.source is Generated, so it is about what workloads create (--expand)"
	case mapd.UnknownKind:
		return fmt.Sprintf("%s is not known, give its CustomResourceDefinition with -p: taken as namespaced %s", n.About[0], n.About[1])
	case mapd.TakenAsIs:
		return fmt.Sprintf("a %s that a server would not accept is taken as it is (--raw)", about)
	}
	return n.String()
}

// noteAssumed prints what differed from a cluster.
func (e *evaluation) noteAssumed() {
	for _, n := range e.policies.Assumed() {
		e.notes.say("note: %s\n", n)
	}
	if e.out.builtin {
		e.notes.say("note: built-in kinds have the defaults of Kubernetes 1.37; not validated, and other admission plugins of a server did not run\n")
	}
}
