//go:build !server

package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/mapd-project/mapd/internal/author/migrate"
	"github.com/mapd-project/mapd/internal/author/verify"
	"github.com/mapd-project/mapd/internal/document/manifest"
	"github.com/mapd-project/mapd/internal/externaldata"
	"github.com/mapd-project/mapd/internal/gatekeeper/translate"
	"github.com/mapd-project/mapd/pkg/api"
)

// migrateFlags are the flags of migrate gatekeeper as they were given.
type migrateFlags struct {
	cluster     clusterFlags
	files       []string
	recursive   bool
	fromCluster bool
	output      string
	patch       string
	style       string
	values      string
	group       string
	report      string
	live        bool
	groupGiven  bool
	snapshot    string
	paramsIn    string
	operations  string
	groupBy     string
	namePrefix  string

	verify    bool
	objects   []string
	generated int
	seed      uint64
}

const migrateLong = `Write native policies for Gatekeeper's mutators.

Each Assign, AssignImage, AssignMetadata and ModifySet becomes a
MutatingAdmissionPolicy and a binding in a file of their own; those whose order
matters share a policy. Standard error has a verdict for each:

  exact        the policy does what the mutator did
  differs      it does, except for what the note says
  engine-only  no policy can do it; mapd runs the mutator as it is
  refused      the mutator cannot run: the note says why, and what to do

Numbers such as T21 in notes name a behaviour of Gatekeeper: docs/move/gatekeeper-policies.md
lists them.

A PolicyException of mapd that names a mutator is written anew with the policy beside it, if
the policies are for mapd alone (--api-group mapd.dev). An API server reads no exceptions:
then a note names the exception, and the exit code is 1.

--verify runs both sides, Gatekeeper's rules and the written policies, on the same
objects: those of -f, with --from-cluster those in the cluster, and
generated ones. It counts the objects without a difference; that is evidence, not
a proof. It only reads the cluster, and does not print the contents of Secrets.

--values params --external-snapshot FILE writes policies for mutators with external
data, too. They call no Provider: a policy looks the string at the location, or the user
name, up in a ConfigMap with the values of FILE. What FILE lacks fails as the
mutator's failurePolicy says. A ConfigMap holds 1 MiB and keys of 253 characters, in
which each character besides letters, digits, "-" and "." counts three times or more.

--live writes the exact policies into the cluster instead, and keeps them in step
with the mutators until it is interrupted. It finds out which API group they need,
unless you pass --api-group.

Besides mutators, the files may have CustomResourceDefinitions of the kinds that
mutators apply to, Namespaces, and Gatekeeper's Config: the policies exclude the
namespaces that it excludes.

Exit codes:
  0  all exact and, with --verify, no difference
  1  a mutator is not exact, or there is a difference
  2  wrong usage, input that cannot be read, or output that cannot be written
  4  the cluster cannot be read: it does not answer, or rights are missing
  130  a comparison was interrupted; the policies are written, a report is not`

func newMigrate(s streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Convert policies of another engine",
		Args:  unknownCommand,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newMigrateGatekeeper(s), newMigrateKyverno(s))
	return cmd
}

func newMigrateGatekeeper(s streams) *cobra.Command {
	var f migrateFlags
	cmd := &cobra.Command{
		Use:   "gatekeeper -p PATH... | --from-cluster | --live",
		Short: "Write native policies for Gatekeeper's mutators",
		Long:  migrateLong,
		Example: `  mapd migrate gatekeeper -p mutators/ --output-dir policies/ --verify
  mapd migrate gatekeeper --from-cluster --verify --report report.html --output-dir policies/
  mapd migrate gatekeeper --live`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			f.groupGiven = cmd.Flags().Changed("api-group")
			return runMigrate(cmd.Context(), s, &f)
		},
	}
	fl := cmd.Flags()
	fl.SortFlags = false
	fl.StringArrayVarP(&f.files, "policies", "p", nil, "mutators, PolicyExceptions from them, CRDs, Namespaces and Gatekeeper's Config, mixed: file, directory or - ; repeatable")
	recursiveVar(fl, &f.recursive)
	fl.BoolVar(&f.fromCluster, "from-cluster", false, "read the mutators from a cluster; with --verify its objects, too (with -p only these)")
	f.cluster.add(fl)
	fl.StringVar(&f.output, "output-dir", "-", "directory for the files; - is one stream on standard output")
	choiceVar(fl, &f.patch, "patch", "auto", ": with auto, JSONPatch or ApplyConfiguration for each mutator; with json, only JSONPatch; with apply, only ApplyConfiguration, and no policy where that cannot do it", "auto", "json", "apply")
	choiceVar(fl, &f.style, "style", "exact", ": what does exactly what the mutator did, or an ApplyConfiguration wherever there can be one, with the differences in the verdict", "exact", "readable")
	choiceVar(fl, &f.values, "values", "inline", ": with inline, the values are written into the policies; with params, policies read them from the mutators, which stay in the cluster", "inline", "params")
	fl.StringVar(&f.snapshot, "external-snapshot", "", "with --values params: file with answers of external data providers, as mapd eval --record writes it; policies look them up in ConfigMaps")
	fl.StringVar(&f.paramsIn, "external-namespace", "kube-system", "namespace of these ConfigMaps")
	choiceVar(fl, &f.group, "api-group", "k8s.io", ": policies for Kubernetes, or for mapd alone", "k8s.io", "mapd.dev")
	choiceVar(fl, &f.operations, "operations", "all", ": policies act on the requests that the mutators act on, or on creations only", "all", "create")
	choiceVar(fl, &f.groupBy, "group-by", "order", ": mutators share a policy if their order matters, or also if they match the same requests", "order", "match")
	fl.StringVar(&f.namePrefix, "name-prefix", "", "prefix of the names of all policies, bindings and files")
	fl.StringVar(&f.report, "report", "", "write a report to FILE.json, FILE.md or FILE.html")
	fl.BoolVar(&f.live, "live", false, "keep the policies in the cluster in step with its mutators until interrupted, as mapd serve --legacy native does")
	fl.BoolVar(&f.verify, "verify", false, "compare both sides on objects")
	addComparison(fl, &f.objects, &f.generated, &f.seed)
	return cmd
}

// addComparison adds the flags for the objects on which both sides of a migration are compared.
func addComparison(fl *pflag.FlagSet, objects *[]string, generated *int, seed *uint64) {
	fl.StringArrayVarP(objects, "filename", "f", nil, "objects to compare on: file, directory or - ; repeatable")
	fl.IntVar(generated, "generated", 500, "how many objects to generate for each comparison")
	fl.Uint64Var(seed, "seed", verify.DefaultSeed, "of the generated objects; the same seed gives the same objects")
}

var reportFormats = map[string]func(*migrate.Report, io.Writer) error{
	".json": (*migrate.Report).WriteJSON,
	".md":   (*migrate.Report).WriteMarkdown,
	".html": (*migrate.Report).WriteHTML,
}

// maxPrefix leaves room for a mutator's name in the name of a policy.
const maxPrefix = 63

// check returns an error for wrong usage, before anything is read.
func (f *migrateFlags) check() error {
	const name = "migrate gatekeeper: "
	if f.live {
		return f.checkLive()
	}
	if len(f.files) == 0 && !f.fromCluster && len(f.objects) > 0 {
		return usagef(name + "no mutators; -p gives them now, and -f the objects to compare on")
	}
	if len(f.files) == 0 && !f.fromCluster {
		return usagef(name + "no mutators; give them with -p, or read them with --from-cluster")
	}
	if len(f.files) > 0 && f.fromCluster && !f.verify {
		return usagef(name + "-p and --from-cluster: only with --verify, which then takes the cluster's objects")
	}
	switch {
	case f.style == "readable" && (f.patch != "auto" || f.values != "inline"):
		return usagef(name + "--style readable: chooses the patch by itself, with values in the policy; leave out --patch and --values")
	case f.values == "params" && f.patch == "apply":
		return usagef(name + "--values params: such policies are JSON patches; leave out --patch apply")
	case f.snapshot != "" && f.values != "params":
		return usagef(name + "--external-snapshot: only with --values params")
	case f.snapshot == "" && f.paramsIn != "kube-system":
		return usagef(name + "--external-namespace: only with --external-snapshot")
	case f.values == "params" && f.groupBy == "match":
		return usagef(name + "--values params: a policy reads the values of one mutator; leave out --group-by match")
	case len(f.namePrefix) > maxPrefix || f.namePrefix != "" && len(validation.IsDNS1123Subdomain(f.namePrefix+"a")) > 0:
		return usagef(name+"--name-prefix %q: must be at most %d lower-case letters, digits, - and ., and begin with a letter or a digit", f.namePrefix, maxPrefix)
	case len(validation.IsDNS1123Label(f.paramsIn)) > 0:
		return usagef(name+"--external-namespace %q: must be the name of a namespace", f.paramsIn)
	case f.output == "":
		return usagef(name + "--output-dir: must be a directory, or - for standard output")
	case f.report != "" && reportFormats[filepath.Ext(f.report)] == nil:
		return usagef(name+"--report %s: must end in .json, .md or .html", f.report)
	case !f.verify && len(f.objects) > 0:
		return usagef(name + "-f: objects are for --verify; mutators are given with -p")
	case f.generated < 0:
		return usagef(name+"--generated %d: must not be negative", f.generated)
	case f.verify && f.generated == 0 && len(f.objects) == 0 && !f.fromCluster:
		return usagef(name + "--verify: no objects; generate some, give them with -f, or read them with --from-cluster")
	}
	if f.report != "" { // a comparison may take long, so check this first
		if _, err := os.Stat(filepath.Dir(f.report)); err != nil {
			return usagef(name+"--report %s: %w", f.report, err)
		}
	}
	stdin := 0
	for _, p := range slices.Concat(f.files, f.objects) {
		if p == manifest.Stdin {
			stdin++
		}
	}
	if stdin > 1 {
		return usagef(name + "standard input (-) can be read only once")
	}
	return nil
}

// checkLive is check for --live, which accepts few other flags.
func (f *migrateFlags) checkLive() error {
	const name = "migrate gatekeeper: --live "
	switch {
	case len(f.files) > 0:
		return usagef(name + "is for the mutators of a cluster, without -p")
	case f.output != "-" || f.report != "" || f.verify:
		return usagef(name + "writes into the cluster; compare and report before, without it")
	case f.values != "inline" || f.patch != "auto" || f.style != "exact":
		return usagef(name + "knows no --values, no --patch and no --style")
	case f.snapshot != "" || f.paramsIn != "kube-system":
		return usagef(name + "knows no --external-snapshot and no --external-namespace")
	case f.operations != "all" || f.groupBy != "order" || f.namePrefix != "":
		return usagef(name + "knows no --operations, no --group-by and no --name-prefix")
	}
	return nil
}

func runMigrate(ctx context.Context, s streams, f *migrateFlags) error {
	if err := f.check(); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if f.live {
		return migrateLive(ctx, s, f)
	}
	m := &migration{flags: f, streams: s}
	if err := m.read(ctx); err != nil {
		return err
	}
	if m.Empty() {
		return usagef("migrate gatekeeper: no mutators in %s", m.source())
	}
	if err := m.write(ctx); err != nil {
		return &codedError{exitUsage, err}
	}
	if f.verify {
		if err := m.compare(ctx); err != nil {
			return err
		}
	}
	if err := m.print(); err != nil {
		return &codedError{exitUsage, err}
	}
	if !m.report.OK() {
		return &codedError{code: exitDiffers}
	}
	return nil
}

// migration is one run of migrate gatekeeper.
type migration struct {
	flags   *migrateFlags
	streams streams
	*migrate.Input
	cluster *liveCluster // nil without --from-cluster

	exceptions migrate.Exceptions

	answers *externaldata.Answers // nil without --external-snapshot
	units   []translate.Unit
	report  *migrate.Report
}

// source returns a description of where the mutators come from.
func (m *migration) source() string {
	if len(m.flags.files) > 0 {
		return strings.Join(m.flags.files, ", ")
	}
	return "the cluster"
}

// read reads the mutators and the objects that they need.
func (m *migration) read(ctx context.Context) error {
	m.Input = migrate.NewInput()
	if m.flags.snapshot != "" {
		data, err := manifest.ReadFile(m.flags.snapshot, manifest.MaxFile)
		if err == nil {
			m.answers, err = externaldata.ReadAnswers(m.flags.snapshot, data)
		}
		if err != nil {
			return usagef("migrate gatekeeper: --external-snapshot: %w", err)
		}
	}
	if m.flags.fromCluster {
		config, err := m.flags.cluster.config()
		if err != nil {
			return usagef("migrate gatekeeper: %w", err)
		}
		c, err := newLiveCluster(ctx, config)
		if err != nil {
			return clusterError(err)
		}
		m.cluster = c
		if len(m.flags.files) == 0 {
			if err := c.readMutators(ctx, m.Input); err != nil {
				return clusterError(err)
			}
			if err := c.readExceptions(ctx, m.Input, &m.exceptions); err != nil {
				return clusterError(err)
			}
		}
		if err := c.readKinds(ctx, m.Input); err != nil {
			return clusterError(err)
		}
	}
	errs := readMutators(m.Input, &m.exceptions, m.flags.files, m.flags.recursive, m.streams.in)
	if err := m.Settle(); err != nil {
		errs = append(errs, err)
	}
	if len(errs) > 0 {
		printErrors(m.streams.err, errs)
		return &codedError{code: exitUsage}
	}
	if m.Config != nil && m.flags.values == "params" && m.Config.Patterns(api.GatekeeperProcess) != nil {
		return usagef("migrate gatekeeper: --values params: the Config excludes namespaces, which the mutators do not say; use --values inline")
	}
	return nil
}

// options returns the options of the translation.
func (m *migration) options() translate.Options {
	o := translate.Options{Patch: m.flags.patch, Readable: m.flags.style == "readable", ByMatch: m.flags.groupBy == "match", NamePrefix: m.flags.namePrefix, Params: m.flags.values == "params", Group: api.NativeGroup}
	if m.answers != nil {
		o.Recorded, o.ParamsNamespace = m.answers.Values(), m.flags.paramsIn
	}
	if m.flags.group == "mapd.dev" {
		o.Group = api.OwnGroup
	}
	return o
}

// write translates and writes the files.
func (m *migration) write(ctx context.Context) error {
	if m.flags.operations == "create" {
		for i, mutator := range m.Mutators {
			m.Mutators[i] = mutator.OnCreate()
		}
		m.Notes = append(m.Notes, "--operations create: policies, and mutators in comparisons, leave updates alone, which Gatekeeper does not")
	}
	var err error
	m.units, m.report, err = m.Translate(ctx, m.options())
	if err != nil {
		return err
	}
	m.exceptions.Move(m.report, m.units, m.options())
	m.report.Version, m.report.Source = version(), m.source()
	printErrors(m.streams.err, m.Refused())
	if m.flags.output == manifest.Stdin {
		for i, f := range m.report.Files {
			if i > 0 {
				if _, err := io.WriteString(m.streams.out, "---\n"); err != nil {
					return err
				}
			}
			if _, err := m.streams.out.Write(f.Data); err != nil {
				return err
			}
		}
		return nil
	}
	stale, err := migrate.Write(m.flags.output, migrate.Command, m.report.Files)
	for _, path := range stale {
		m.report.Notes = append(m.report.Notes, path+" is of an earlier run; nothing stands for it now, so it is best removed")
	}
	return err
}

// compare compares both sides on all objects.
func (m *migration) compare(ctx context.Context) error {
	var o verify.Options
	if m.answers != nil {
		o.Answers, o.Keys = m.answers, m.answers.Keys()
	}
	v := m.Verifier(m.units, m.options(), o)
	r := &migrate.Verification{Seed: m.flags.seed, Generated: m.flags.generated}
	check := func(o verify.Object) {
		o.Object = verify.Defaulted(o.Object)
		v.Check(ctx, o)
	}
	switch {
	case len(m.flags.objects) > 0:
		n, errs := readObjects(m.Input, m.flags.objects, m.flags.recursive, m.streams.in, check)
		if len(errs) > 0 {
			printErrors(m.streams.err, errs)
			return &codedError{code: exitUsage}
		}
		if r.Given = n; n == 0 {
			return usagef("migrate gatekeeper: no objects in %s", strings.Join(m.flags.objects, ", "))
		}
	case m.cluster != nil:
		n, notes, err := m.cluster.eachObject(ctx, m.Input, check)
		if err != nil {
			return clusterError(err)
		}
		r.Live = n
		m.report.Notes = append(m.report.Notes, notes...)
	}
	v.CheckGenerated(ctx, m.flags.seed, m.flags.generated)
	if ctx.Err() != nil {
		return &codedError{exitInterrupted, errors.New("migrate gatekeeper: interrupted; the comparison is not complete")}
	}
	r.Comparisons = v.Comparisons()
	m.report.Verification = r
	return nil
}

// print prints the summary and writes the report.
func (m *migration) print() error {
	if err := m.report.WriteTable(m.streams.err); err != nil {
		return err
	}
	if m.flags.report == "" {
		return nil
	}
	var b bytes.Buffer
	if err := reportFormats[filepath.Ext(m.flags.report)](m.report, &b); err != nil {
		return err
	}
	return os.WriteFile(m.flags.report, b.Bytes(), 0o666)
}
