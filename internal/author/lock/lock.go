// Package lock answers one question: which objects of a cluster do policies read, and are they
// still as the snapshot file has them?
//
// A snapshot is a file of manifests that begins with comments: its date, the version of
// Kubernetes, and the digest of each object. It is read like any other file; Check compares the
// objects with their digests. Start reading at Write and Check.
package lock

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/internal/document/manifest"
	"github.com/mapd-project/mapd/pkg/api"
)

const (
	first  = "# mapd snapshot of Kubernetes "
	digest = "# sha256:"
)

// Write returns a snapshot of objects, reduced to the fields that policies read. It leaves out
// Secrets, and returns their names.
func Write(version string, at time.Time, objects []*unstructured.Unstructured) (text []byte, secrets []string) {
	objects = slices.Clone(objects)
	name := func(u *unstructured.Unstructured) string { return u.GetAPIVersion() + " " + manifest.Name(u) }
	slices.SortStableFunc(objects, func(a, b *unstructured.Unstructured) int { return strings.Compare(name(a), name(b)) })
	var head, body bytes.Buffer
	fmt.Fprintf(&head, "%s%s, %s\n", first, version, at.UTC().Format(time.RFC3339))
	for _, u := range objects {
		if u.GetAPIVersion() == "v1" && u.GetKind() == "Secret" {
			secrets = append(secrets, manifest.Name(u))
			continue
		}
		doc := manifest.Encode(reduced(u))
		fmt.Fprintf(&head, "%s%x %s\n", digest, sha256.Sum256(doc), manifest.Name(u))
		body.WriteString("---\n")
		body.Write(doc)
	}
	return append(head.Bytes(), body.Bytes()...), secrets
}

// reduced returns an object without the fields that servers manage.
func reduced(u *unstructured.Unstructured) map[string]any {
	out := maps.Clone(u.Object)
	delete(out, "status")
	if u.GetAPIVersion() == "v1" && u.GetKind() == "Namespace" {
		delete(out, "spec")
	}
	meta := map[string]any{"name": u.GetName()}
	if ns := u.GetNamespace(); ns != "" {
		meta["namespace"] = ns
	}
	was, _ := out["metadata"].(map[string]any)
	for _, field := range []string{"labels", "annotations"} {
		m, _ := was[field].(map[string]any)
		m = maps.Clone(m)
		delete(m, corev1.LastAppliedConfigAnnotation)
		if len(m) > 0 {
			meta[field] = m
		}
	}
	out["metadata"] = meta
	return out
}

// Needed reports whether a CustomResourceDefinition defines a group of resources or a parameter
// of the policies. It returns true for other objects.
func Needed(u *unstructured.Unstructured, policies []*unstructured.Unstructured) bool {
	if u.GroupVersionKind().Group != api.DefinitionGroup || u.GetKind() != api.DefinitionKind {
		return true
	}
	group, _, _ := unstructured.NestedString(u.Object, "spec", "group")
	return slices.ContainsFunc(policies, func(p *unstructured.Unstructured) bool {
		version, _, _ := unstructured.NestedString(p.Object, "spec", "paramKind", "apiVersion")
		if of, _, _ := strings.Cut(version, "/"); of == group {
			return true
		}
		for _, match := range []string{"matchConstraints", "matchResources"} {
			rules, _, _ := unstructured.NestedSlice(p.Object, "spec", match, "resourceRules")
			for _, r := range rules {
				rule, _ := r.(map[string]any)
				groups, _, _ := unstructured.NestedStringSlice(rule, "apiGroups")
				if slices.Contains(groups, group) || slices.Contains(groups, "*") {
					return true
				}
			}
		}
		return false
	})
}

// Check returns the date of a snapshot; ok is false if the file is none. It returns an error if
// the objects in the file do not have the recorded digests.
func Check(name string, text []byte) (at time.Time, ok bool, err error) {
	if !bytes.HasPrefix(text, []byte(first)) {
		return at, false, nil
	}
	fail := func(format string, args ...any) (time.Time, bool, error) {
		return at, true, fmt.Errorf("%s: %w; mapd snapshot makes it anew", name, fmt.Errorf(format, args...))
	}
	head, body, some := bytes.Cut(text, []byte("\n---\n"))
	lines := strings.Split(strings.TrimSuffix(string(head), "\n"), "\n")
	_, date, _ := strings.Cut(lines[0], ", ")
	if at, err = time.Parse(time.RFC3339, date); err != nil {
		return fail("the first line does not end with when it was made")
	}
	var docs [][]byte
	if some {
		docs = bytes.SplitAfter(body, []byte("\n---\n"))
	}
	if len(docs) != len(lines)-1 {
		return fail("%d objects, and digests of %d", len(docs), len(lines)-1)
	}
	for i, line := range lines[1:] {
		sum, what, _ := strings.Cut(strings.TrimPrefix(line, digest), " ")
		doc := docs[i]
		if i < len(docs)-1 {
			doc = bytes.TrimSuffix(doc, []byte("---\n"))
		}
		if sum != fmt.Sprintf("%x", sha256.Sum256(doc)) {
			return fail("%s is not what the cluster had: its digest is another one", what)
		}
	}
	return at, true, nil
}
