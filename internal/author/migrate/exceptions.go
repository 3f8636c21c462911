package migrate

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mapd-project/mapd/internal/document/manifest"
	"github.com/mapd-project/mapd/internal/gatekeeper/translate"
	"github.com/mapd-project/mapd/internal/policyset"
	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/binding"
	"github.com/mapd-project/mapd/pkg/legacy"
)

// Exceptions are the PolicyExceptions that name mutators. The zero value is ready to use.
type Exceptions struct {
	// Installation is the namespace of mapd, whose exceptions are for all namespaces; empty:
	// api.Installation.
	Installation string

	all []exception
	// notes are about exceptions that mapd does not apply.
	notes []string
}

type exception struct {
	object   *unstructured.Unstructured
	name     string // with its place, if it is of a file
	policies []string
}

// Add records a PolicyException, and reports whether it names a mutator. d is its document, nil
// if it comes from a cluster.
func (x *Exceptions) Add(u *unstructured.Unstructured, d *manifest.Document) bool {
	named, _, _ := unstructured.NestedStringSlice(u.Object, "spec", "policies")
	if !slices.ContainsFunc(named, isMutator) {
		return false
	}
	name := manifest.Name(u)
	if d != nil {
		name += " (" + d.Where() + ")"
	}
	if err := x.applied(u, d == nil); err != nil {
		x.notes = append(x.notes, fmt.Sprintf("%s: mapd does not apply it, so it is left alone: %v", name, err))
		return true
	}
	x.all = append(x.all, exception{u, name, named})
	return true
}

func isMutator(policy string) bool {
	kind, _, ok := strings.Cut(policy, "/")
	return ok && slices.Contains(legacy.Kinds(), legacy.Kind(kind))
}

// applied returns an error with the reason why mapd does not apply an exception.
func (x *Exceptions) applied(u *unstructured.Unstructured, inCluster bool) error {
	text, err := api.JSON(u)
	if err != nil {
		return err
	}
	obj, err := api.DecodeException(text, cmp.Or(u.GetNamespace(), policyset.DefaultNamespace))
	if err != nil {
		return err
	}
	if _, err := binding.CompileException(obj, api.ExceptionRules{Own: x.Installation, Endless: true}); err != nil {
		return err
	}
	if inCluster {
		_, err = obj.Allowed()
	}
	return err
}

// exceptionsFile is the name of the file with the exceptions, behind the prefix of all names.
const exceptionsFile = "policyexceptions.yaml"

// Move writes the exceptions for the policies of units into a file of the report. An exception
// still names its mutators, because they run until they are deleted. If policies cannot be
// excepted in the same way as their mutators, Move adds a note, and the report is not OK.
func (x *Exceptions) Move(r *Report, units []translate.Unit, o translate.Options) {
	r.Notes = append(r.Notes, x.notes...)
	var written []*unstructured.Unstructured
	for _, e := range x.all {
		var policies, from []string
		for _, u := range units {
			if u.Policy == nil {
				continue
			}
			var excepted, others []string
			for _, v := range u.Verdicts {
				if slices.Contains(e.policies, v.ID) {
					excepted = append(excepted, v.ID)
				} else {
					others = append(others, v.ID)
				}
			}
			switch {
			case len(excepted) == 0:
			case o.Group != api.OwnGroup:
				r.undecided("%s names %s. An API server, which will run the policy %s, reads no exceptions: until the exception has ended, keep the mutator, or write the policies with --api-group mapd.dev",
					e.name, strings.Join(excepted, ", "), u.Policy.Name)
			case len(others) > 0:
				r.undecided("%s names %s and not %s, and the policy %s stands for all of them: name them all there, or keep these mutators until the exception has ended",
					e.name, strings.Join(excepted, ", "), strings.Join(others, ", "), u.Policy.Name)
			default:
				policies, from = append(policies, u.Policy.Name), append(from, excepted...)
			}
		}
		if len(policies) == 0 {
			continue
		}
		u := e.with(policies)
		if err := x.applied(u, false); err != nil { // with the mutators it has too many names
			u = e.with(policies, from...)
		}
		written = append(written, u)
		r.Notes = append(r.Notes, fmt.Sprintf("%s: %s has it with %s beside the mutators; apply it with the policies, and take the mutators out when they are deleted",
			e.name, o.NamePrefix+exceptionsFile, strings.Join(policies, ", ")))
	}
	if len(written) > 0 {
		comment := "# The exceptions from mutators, with the policies that stand for these.\n#\n" + Marker(Command) + "\n"
		r.Files = append(r.Files, File{o.NamePrefix + exceptionsFile, Encode(comment, written)})
	}
}

// with returns the exception as one writes it, from other policies, too, and not from some.
func (e *exception) with(policies []string, without ...string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"spec": runtime.DeepCopyJSONValue(e.object.Object["spec"])}}
	u.SetGroupVersionKind(schema.GroupVersionKind{Group: api.ExceptionGroup, Version: api.ExceptionVersion, Kind: api.ExceptionKind})
	u.SetNamespace(e.object.GetNamespace())
	u.SetName(e.object.GetName())
	u.SetLabels(e.object.GetLabels())
	annotations := maps.Clone(e.object.GetAnnotations())
	delete(annotations, corev1.LastAppliedConfigAnnotation)
	if len(annotations) > 0 {
		u.SetAnnotations(annotations)
	}
	var all []string
	for _, name := range slices.Concat(e.policies, policies) {
		if !slices.Contains(all, name) && !slices.Contains(without, name) {
			all = append(all, name)
		}
	}
	_ = unstructured.SetNestedStringSlice(u.Object, all, "spec", "policies") // it has a spec
	return u
}

// undecided adds a note on what somebody has to decide.
func (r *Report) undecided(format string, args ...any) {
	r.Notes = append(r.Notes, fmt.Sprintf(format, args...))
	r.Undecided = true
}
