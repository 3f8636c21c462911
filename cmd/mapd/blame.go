//go:build !server

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mapd-project/mapd/internal/document/manifest"
	"github.com/mapd-project/mapd/internal/operate/blame"
	"github.com/mapd-project/mapd/pkg/tree"
)

type blameFlags struct {
	replicas  replicaFlags
	owners    bool
	logs      []string
	namespace string
	uid       string
	field     string
	output    string
}

const blameLong = `Show who wrote which field of an object, and when.

The object is named as kubectl names it: po/web-1, deployment.apps/web. The answer has
one line for each field, which says where it is from:

  record         what a replica of mapd remembers of its answers: which policy changed
                 which fields; in memory, bounded, and lost when the replica ends
                 unless mapd serve --record-sink=configmap stores it
  managedFields  the field manager that set the field, as the API server keeps it
  again          a guess: a field that nobody manages, and that a policy of the cluster
                 would write today with the value that it has; also the exceptions
                 (PolicyException) that keep policies from the object today
  audit log      what the API server noted of a request, with --audit-log

Of a field that a Pod has from the template of its workload, the line says who wrote
it there; and of a workload, policies that wrote into the newest object that it made
are listed, too. --owners=false looks at the object alone. Fields of the status are
left out, unless --field asks for them.

With --audit-log, the answer is from the API server's audit log alone, and no cluster
is asked: one line for each field that a request, a policy of mapd or another webhook
wrote, for as far back as the log goes. The log has one event of audit.k8s.io/v1 in a
line, or one EventList. It is read once and may be of any length. What it cannot know
follows from its level:

  Metadata         what mapd's policies changed; of other webhooks, only that they changed something
  Request          also what other webhooks and patches changed
  RequestResponse  also what each update changed, and generated names

A line of the log that cannot be read is named on standard error and skipped.

Output formats:
  table  one line for each field (default)
  json   a list
  yaml   a list

Exit codes:
  0  done
  1  nothing is known of the object
  2  wrong usage, or a file that cannot be read` + unreachableExit + `
  5  something could not be read, the rest was done` + interruptedExit

func newBlame(s streams) *cobra.Command {
	var f blameFlags
	cmd := &cobra.Command{
		Use:   "blame KIND/NAME",
		Short: "Show who wrote which field of an object",
		Long:  blameLong,
		Example: `  mapd blame pod/web-7d4b9c-x2x5w -n shop
  mapd blame deployment/web --field spec.replicas
  mapd blame deployment/web -n shop --audit-log /var/log/kubernetes/audit.log`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usagef("blame: want one object, such as pod/web-1")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return runBlame(cmd.Context(), s, &f, args[0])
		},
	}
	fl := cmd.Flags()
	fl.SortFlags = false
	fl.StringArrayVar(&f.logs, "audit-log", nil, "audit log of the API server: file, file.gz or - ; repeatable, the oldest first")
	f.replicas.add(fl)
	fl.BoolVar(&f.owners, "owners", true, "also look at the object's owners, and at what it owns")
	fl.StringVarP(&f.namespace, "namespace", "n", "", "namespace of the object (default that of the context, else default)")
	fl.StringVar(&f.uid, "uid", "", "of several objects that had this name, only the one with this UID")
	fl.StringVar(&f.field, "field", "", "only this field and what is in it, such as spec.replicas or metadata.labels[example.com/team]; a JSON pointer, such as /spec/replicas, will do as well")
	choiceVarP(fl, &f.output, "output", "o", "table", "", "table", "json", "yaml")
	return cmd
}

func runBlame(ctx context.Context, s streams, f *blameFlags, object string) error {
	kind, name, err := blame.ParseName(object)
	if err != nil {
		return usagef("blame: %w", err)
	}
	if f.field, err = tree.ParseField(f.field); err != nil {
		return usagef("blame: --field: %w; want a field, such as spec.replicas or metadata.labels[example.com/team]", err)
	}
	if err := f.replicas.check("blame"); err != nil {
		return err
	}
	if len(f.logs) == 0 {
		return blameInCluster(ctx, s, f, kind, name)
	}
	out := newBlamePrinter(s.out, f.output)
	print := func(l blame.Line) error {
		if !l.About(f.field) {
			return nil
		}
		return out.print(&l)
	}
	target := blame.Offline(kind, cmp.Or(f.namespace, metav1.NamespaceDefault), name)
	target.UID = types.UID(f.uid)
	log := blame.NewLog(target, print)
	for _, file := range f.logs {
		if err := readLog(log, s.in, file); err != nil {
			return &codedError{exitUsage, errors.Join(fmt.Errorf("blame: %w", err), out.end())}
		}
	}
	if err := errors.Join(log.End(), out.end()); err != nil {
		return &codedError{exitUsage, err}
	}
	for _, c := range log.Complaints {
		fmt.Fprintf(s.err, "warning: %s\n", c)
	}
	if left := log.Bad - len(log.Complaints); left > 0 {
		fmt.Fprintf(s.err, "warning: and %d more lines\n", left)
	}
	fmt.Fprintf(s.err, "%s: %d lines read, %d skipped; %d events of %s\n", strings.Join(f.logs, ", "), log.Read, log.Bad, log.Events, target)
	if n := log.Nameless(); n > 0 && out.lines == 0 {
		fmt.Fprintf(s.err, "%d creations there have no name in the log, and nothing names %s soon after one: level RequestResponse has names\n", n, target)
	}
	switch {
	case log.Bad > 0:
		return &codedError{code: exitPartial}
	case out.lines == 0:
		return &codedError{code: exitDenied}
	}
	return nil
}

// readLog reads a file or standard input.
func readLog(log *blame.Log, stdin io.Reader, file string) error {
	if file == manifest.Stdin {
		return log.ReadFile("stdin", stdin)
	}
	r, err := manifest.Open(file, manifest.MaxLog)
	if err != nil {
		return err
	}
	defer r.Close()
	return log.ReadFile(file, r)
}
