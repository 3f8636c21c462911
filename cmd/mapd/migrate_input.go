//go:build !server

package main

import (
	"cmp"
	"io"

	"github.com/mapd-project/mapd/internal/author/migrate"
	"github.com/mapd-project/mapd/internal/author/verify"
	"github.com/mapd-project/mapd/internal/document/manifest"
	"github.com/mapd-project/mapd/internal/policyset"
	"github.com/mapd-project/mapd/pkg/api"
)

// readMutators reads mutators, exceptions from them and other objects from files. It returns
// errors for files that cannot be read.
func readMutators(in *migrate.Input, exceptions *migrate.Exceptions, paths []string, recursive bool, stdin io.Reader) []error {
	files, skipped, err := manifest.Files(paths, recursive)
	if err != nil {
		return []error{err}
	}
	for what, n := range skipped {
		in.Ignored[what] += n
	}
	var errs []error
	for d, err := range manifest.Read(manifest.Inputs(once(files), stdin)) {
		if err == nil && d.Object != nil && !(api.IsException(d.Object.GroupVersionKind()) && exceptions.Add(d.Object, d)) {
			err = in.Add(d.Object, d)
		}
		if err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}

// readObjects reads the objects to compare on and calls check with each. A
// Namespace among them, at any position, is also the Namespace of the others.
func readObjects(in *migrate.Input, paths []string, recursive bool, stdin io.Reader, check func(verify.Object)) (n int, errs []error) {
	files, _, err := manifest.Files(paths, recursive)
	if err != nil {
		return 0, []error{err}
	}
	var docs []*manifest.Document
	for d, err := range manifest.Read(manifest.Inputs(once(files), stdin)) {
		switch {
		case err != nil:
			errs = append(errs, err)
		case d.Object != nil:
			if d.Object.GetKind() == "Namespace" && d.Object.GetAPIVersion() == "v1" {
				in.Namespaces[d.Object.GetName()] = d.Object.Object
			}
			docs = append(docs, d)
		}
	}
	if len(errs) > 0 {
		return 0, errs
	}
	for _, d := range docs {
		check(in.Object(d.Object, cmp.Or(d.Object.GetNamespace(), policyset.DefaultNamespace), d.Name()+" in "+d.Where()))
	}
	return len(docs), nil
}
