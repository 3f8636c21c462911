//go:build !server

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mapd-project/mapd/internal/document/kustomize"
	"github.com/mapd-project/mapd/internal/document/manifest"
	"github.com/mapd-project/mapd/internal/output/report"
	"github.com/mapd-project/mapd/pkg/mapd"
)

// rereadable returns files as inputs that can be opened more than once. Standard input, pipes
// and the like are copied to an unnamed temporary file, so that an input of any length needs no
// memory; done removes it.
func rereadable(files []string, stdin io.Reader) (inputs []manifest.Input, done func(), err error) {
	var copies []*os.File
	done = func() {
		for _, f := range copies {
			f.Close()
			_ = os.Remove(f.Name()) // for systems that cannot remove an open file
		}
	}
	inputs = manifest.Streams(files, stdin)
	for i, file := range files {
		if file != manifest.Stdin {
			if info, err := os.Stat(file); err != nil || info.Mode().IsRegular() {
				continue // reading the file reports the error
			}
		}
		f, err := os.CreateTemp("", "mapd-*")
		if err != nil {
			done()
			return nil, nil, err
		}
		copies = append(copies, f)
		_ = os.Remove(f.Name())
		r, err := inputs[i].Open()
		if err == nil {
			err = manifest.Copy(f, inputs[i].Name, r)
			r.Close()
		}
		if err != nil {
			done()
			return nil, nil, err
		}
		inputs[i].Open = func() (io.ReadCloser, error) { return io.NopCloser(io.NewSectionReader(f, 0, 1<<62)), nil }
	}
	return inputs, done, nil
}

// kustomized returns the output of the kustomizations in directories, as inputs.
func kustomized(dirs []string) (inputs []manifest.Input, err error) {
	for _, dir := range dirs {
		text, err := kustomize.Build(dir)
		if err != nil {
			return nil, errors.New(err.Error()) // drop the error's type, which could be taken for one of a cluster
		}
		inputs = append(inputs, manifest.Input{
			Name: dir + " (kustomize)", Open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(text)), nil },
		})
	}
	return inputs, nil
}

// contextOf returns the objects of files that affect how others are evaluated: policies,
// bindings, mutators, definitions and Namespaces, and objects of the kinds that are parameters
// of a policy in inputs, texts or given. It ignores files that cannot be read; the evaluation
// reports them later, in order.
func contextOf(inputs []manifest.Input, texts []mapd.File, given []*mapd.Document) []*mapd.Document {
	params := map[schema.GroupKind]bool{}
	for _, d := range given {
		addParamKind(params, d.Object())
	}
	for _, t := range texts {
		if !bytes.Contains(t.Data, []byte("paramKind")) {
			continue
		}
		for d, err := range mapd.Read(t.Name, bytes.NewReader(t.Data)) {
			if err == nil && d.Object() != nil {
				addParamKind(params, d.Object())
			}
		}
	}
	before := len(params)
	docs := collect(inputs, func(d *mapd.Document) bool {
		if !d.IsContext() {
			return params[d.Object().GroupVersionKind().GroupKind()]
		}
		addParamKind(params, d.Object())
		return true
	})
	if len(params) == before {
		return docs
	}
	// The parameters of a policy in a stream may be before the policy.
	return collect(inputs, func(d *mapd.Document) bool {
		return d.IsContext() || params[d.Object().GroupVersionKind().GroupKind()]
	})
}

func collect(inputs []manifest.Input, wanted func(*mapd.Document) bool) (docs []*mapd.Document) {
	for d, err := range readDocuments(inputs) {
		if err == nil && d.Object() != nil && d.Object().GetName() != "" && wanted(d) {
			docs = append(docs, d)
		}
	}
	return docs
}

func addParamKind(kinds map[schema.GroupKind]bool, policy *unstructured.Unstructured) {
	kind, ok, _ := unstructured.NestedStringMap(policy.Object, "spec", "paramKind")
	if ok {
		kinds[schema.FromAPIVersionAndKind(kind["apiVersion"], kind["kind"]).GroupKind()] = true
	}
}

// onlySuffix returns the end of an error about files without policies: what they have instead.
func onlySuffix(ignored string) string {
	if ignored == "" {
		return ""
	}
	return ", only " + ignored
}

// noPolicies returns the error for files without policies, after warnings about kinds that may
// be misspelt.
func (e *evaluation) noPolicies() error {
	f, p := e.flags, e.policies
	for _, n := range p.Notes() {
		if n.Kind == mapd.Mistake {
			e.notes.warn("%s\n", report.Line(n.String()))
		}
	}
	return f.usagef("no policies in %s%s", strings.Join(slices.Concat(f.policies, f.files, f.kustomize), ", "), onlySuffix(ignoredText(p.Ignored(), e.skipped, false)))
}

// sayRead prints what was read, if some of it is not used.
func (e *evaluation) sayRead() {
	f, p := e.flags, e.policies
	ignored := ignoredText(p.Ignored(), e.skipped, f.expand)
	if ignored == "" {
		return
	}
	var parts []string
	for _, c := range []struct {
		n          int
		one, other string
	}{
		{len(p.Policies()), "policy", "policies"}, {p.Bindings(), "binding", "bindings"},
		{p.Mutators(), "mutator", "mutators"}, {p.Kyverno(), "rule of Kyverno", "rules of Kyverno"}, {len(p.Kubewarden()), "policy of Kubewarden", "policies of Kubewarden"},
	} {
		if c.n > 0 {
			parts = append(parts, counted(c.n, c.one, c.other))
		}
	}
	text := counted(e.files, "file", "files")
	if len(parts) > 0 {
		text += ": " + strings.Join(parts, ", ")
	}
	e.notes.say("%s; ignored: %s\n", report.Line(text), report.Line(ignored))
}

// paths returns the paths in the values of -p and -f. A value may have several, separated by
// commas, and patterns that the shell did not expand.
func paths(values []string) ([]string, error) {
	var out []string
	for _, value := range values {
		if _, err := os.Stat(value); err == nil || value == manifest.Stdin {
			out = append(out, value)
			continue
		}
		for _, path := range strings.Split(value, ",") {
			if path == "" {
				return nil, errors.New("an empty path in " + value)
			}
			if _, err := os.Lstat(path); err != nil && strings.ContainsAny(path, "*?[") {
				found, err := filepath.Glob(path)
				if err != nil {
					return nil, fmt.Errorf("%s: %w", path, err)
				}
				if len(found) == 0 {
					return nil, fmt.Errorf("%s: no file matches", path)
				}
				out = append(out, found...)
				continue
			}
			out = append(out, path)
		}
	}
	return out, nil
}

// hasPolicies reports whether files may have a policy.
func hasPolicies(texts []mapd.File) bool {
	return slices.ContainsFunc(texts, func(t mapd.File) bool { return bytes.Contains(t.Data, []byte("Policy")) })
}
