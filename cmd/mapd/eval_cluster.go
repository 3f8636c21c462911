//go:build !server

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/mapd-project/mapd/internal/document/manifest"
	"github.com/mapd-project/mapd/internal/operate/audit"
	"github.com/mapd-project/mapd/internal/operate/blame"
	"github.com/mapd-project/mapd/internal/output/report"
	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/mapd"
)

// evalCluster is the cluster whose policies are evaluated, if the flags name one.
type evalCluster struct {
	on, native bool
	cluster    clusterFlags
	objects    []string // of the cluster: KIND/NAME
	// installation is the namespace of the cluster's mapd, "" if it is not known.
	installation string
}

func (f *evalCluster) add(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.BoolVar(&f.on, "from-cluster", false, "also read the policies of a cluster, with their bindings, params, CRDs and Namespaces, and the objects that are named as arguments; if two have the same name, the one of -p is used")
	fl.BoolVar(&f.native, "native", false, "with --from-cluster: the policies of admissionregistration.k8s.io instead of mapd's, Gatekeeper's, Kyverno's and Kubewarden's")
	f.cluster.add(fl)
}

func (f *evalFlags) checkCluster() error {
	c := &f.fromCluster
	switch {
	case c.native && !c.on:
		return f.usagef("--native is for --from-cluster; all policies of -p run")
	case f.inPlace && len(c.objects) > 0:
		return f.usagef("--in-place is for files; there are none of objects of a cluster")
	}
	for _, o := range c.objects {
		if _, _, err := blame.ParseName(o); err != nil {
			return f.usagef("%w", err)
		}
	}
	return nil
}

// readCluster reads the policies and the named objects. Unless the flags say so, it also
// determines the minor of the expression language and the namespace of the objects.
func (f *evalFlags) readCluster(ctx context.Context, s streams) (policies []*mapd.Document, objects []manifest.Input, err error) {
	from := &f.fromCluster
	config, err := from.cluster.config()
	if err != nil {
		return nil, nil, f.usagef("%w", err)
	}
	fail := func(err error) error { return &codedError{exitUnreachable, fmt.Errorf("%s: %w", f.command, err)} }
	if f.kubernetes == "" {
		if f.kubernetes, err = languageOf(ctx, config); err != nil {
			return nil, nil, fail(err)
		}
	}
	if f.only == "" {
		f.namespace = from.cluster.namespace()
	}
	c, err := audit.Connect(ctx, config)
	if err != nil {
		return nil, nil, fail(err)
	}
	from.installation = c.Installation(ctx)
	docs, problems, err := c.Documents(ctx, audit.Loading{Native: from.native, Mutators: true, Kyverno: true, Modules: true})
	if err != nil {
		return nil, nil, fail(err)
	}
	for _, p := range append(problems, c.Notes...) {
		fmt.Fprintf(s.err, "note: %s\n", report.Line(p))
	}
	for _, d := range docs {
		text, err := json.MarshalIndent(d.Object.Object, "", "  ") // errors quote a line of it
		if err != nil {
			return nil, nil, fail(err)
		}
		for d, err := range mapd.Read(d.Name(), bytes.NewReader(text)) {
			if err != nil {
				return nil, nil, fail(err)
			}
			policies = append(policies, d)
		}
	}
	for _, o := range from.objects {
		kind, name, err := blame.ParseName(o)
		if err != nil {
			return nil, nil, f.usagef("%w", err)
		}
		r, err := c.Find(kind)
		if err != nil {
			return nil, nil, f.usagef("%w", err)
		}
		object, err := c.Created(ctx, r, f.namespace, name)
		if err != nil {
			return nil, nil, fail(err)
		}
		text, err := json.MarshalIndent(object.Object, "", "  ")
		if err != nil {
			return nil, nil, fail(err)
		}
		objects = append(objects, manifest.Input{Name: o, Open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(text)), nil }})
	}
	return policies, objects, nil
}

// leaveOut returns the documents of a cluster without those that have errors and without the
// bindings of policies that have errors. It prints a warning for each: mapd and API servers run
// the other policies too. ok is false if there are other errors.
func (e *evaluation) leaveOut(live []*mapd.Document, refused *mapd.LoadError) (rest []*mapd.Document, ok bool) {
	of := map[string]*mapd.Document{}
	for _, d := range live {
		of[d.Name()] = d
	}
	why, names := map[string][]string{}, []string{}
	for _, err := range refused.Errs {
		var at *mapd.Error
		if !errors.As(err, &at) || of[at.File] == nil {
			return live, false
		}
		if why[at.File] == nil {
			names = append(names, at.File)
		}
		why[at.File] = append(why[at.File], at.Err.Error())
	}
	policies := map[[2]string]bool{} // left out, by group and name
	for _, name := range names {
		u, then := of[name].Object(), ""
		if u.GetKind() == api.PolicyKind {
			policies[[2]string{u.GroupVersionKind().Group, u.GetName()}] = true
			if p, _, _ := unstructured.NestedString(u.Object, "spec", "failurePolicy"); p != string(admissionregistrationv1.Ignore) {
				then = "; in the cluster what it matches is refused (failurePolicy: Fail)"
			}
		}
		e.notes.warn("%s\n", report.Line(fmt.Sprintf("%s of the cluster is left out: %s%s", name, strings.Join(why[name], "; "), then)))
	}
	return slices.DeleteFunc(slices.Clone(live), func(d *mapd.Document) bool {
		u := d.Object()
		policy, _, _ := unstructured.NestedString(u.Object, "spec", "policyName")
		return why[d.Name()] != nil || u.GetKind() == api.BindingKind && policies[[2]string{u.GroupVersionKind().Group, policy}]
	}), len(names) > 0
}

// languageOf returns the minor of the expression language of a cluster.
func languageOf(ctx context.Context, config *rest.Config) (string, error) {
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return "", err
	}
	info, err := discovery.ToDiscoveryInterfaceWithContext(kube.Discovery()).ServerVersionWithContext(ctx)
	if err != nil {
		return "", err
	}
	return language(info)
}
