package doctor

import (
	"context"
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mapd-project/mapd/internal/cluster/feature"
	"github.com/mapd-project/mapd/internal/cluster/gatekeeper"
	"github.com/mapd-project/mapd/internal/gatekeeper/nativepolicies"
	"github.com/mapd-project/mapd/internal/words"
	"github.com/mapd-project/mapd/pkg/legacy"
)

const mutatorsCheck = "Gatekeeper's mutators"

// gatekeeperWebhook is the name of Gatekeeper's own mutating webhook
// (Gatekeeper spec §9.1).
const gatekeeperWebhook = "mutation.gatekeeper.sh"

// mutators has the facts about Gatekeeper's mutators.
type mutators struct {
	stored int              // the number of mutators in the cluster
	mode   string           // mapd's --legacy: on, shadow, native, off
	list   *feature.Listing // mapd's list of them; nil if there is none
	entry  bool             // a webhook entry makes API servers call mapd for them
	rival  string           // the webhook configuration of Gatekeeper's own mutation; empty: none
	live   int              // policies that mapd has written for mutators
}

// mutators checks whether mapd runs Gatekeeper's mutators, and their state.
func (x *examination) mutators(ctx context.Context) {
	g := mutators{mode: x.legacyMode(), live: x.live}
	var err error
	if g.stored, err = x.countMutators(ctx); err != nil {
		x.unseen(mutatorsCheck, "list", "the kinds of "+legacy.Group, err)
		return
	}
	config, err := x.Kubernetes.CoreV1().ConfigMaps(namespace).Get(ctx, gatekeeper.MutatorsName, metav1.GetOptions{})
	switch {
	case err == nil:
		list := gatekeeper.ReadMutators(config.Data)
		g.list = &list
	case !apierrors.IsNotFound(err):
		x.unseen(mutatorsCheck, "get", "configmap "+gatekeeper.MutatorsName+" in "+namespace, err)
		return
	}
	if g.mode == "" { // without a Deployment, only the list has the mode
		g.mode = "off"
		if g.list != nil {
			g.mode = g.list.Mode
		}
	}
	if c := x.configuration(); c != nil {
		g.entry = slices.ContainsFunc(c.Webhooks, func(w admissionregistrationv1.MutatingWebhook) bool { return w.Name == gatekeeper.EntryName })
	}
	for _, c := range x.mutating {
		if slices.ContainsFunc(c.Webhooks, func(w admissionregistrationv1.MutatingWebhook) bool { return w.Name == gatekeeperWebhook }) {
			g.rival = c.Name
		}
	}
	x.lines = append(x.lines, g.lines()...)
}

// legacyMode returns the --legacy of the Deployment, or "" without a
// Deployment.
func (x *examination) legacyMode() string {
	if x.deployment == nil {
		return ""
	}
	mode := "off"
	containers, _, _ := unstructured.NestedSlice(x.deployment.Object, "spec", "template", "spec", "containers")
	for _, c := range containers {
		c, _ := c.(map[string]any)
		args, _, _ := unstructured.NestedStringSlice(c, "args")
		for i, arg := range args {
			if value, ok := strings.CutPrefix(arg, "--legacy="); ok {
				mode = value
			} else if arg == "--legacy" && i+1 < len(args) {
				mode = args[i+1]
			}
		}
	}
	return mode
}

// countMutators counts the stored mutators, in any served version.
func (x *examination) countMutators(ctx context.Context) (int, error) {
	seen := map[string]bool{}
	n := 0
	for _, version := range []string{"v1", "v1beta1", "v1alpha1"} {
		gv := schema.GroupVersion{Group: legacy.Group, Version: version}
		kinds, err := x.resources(ctx, gv)
		if err != nil {
			return 0, err
		}
		for _, k := range kinds {
			if seen[k.kind] || !legacy.IsMutator(gv.WithKind(k.kind)) {
				continue
			}
			seen[k.kind] = true
			list, err := x.Dynamic.Resource(gv.WithResource(k.resource)).List(ctx, metav1.ListOptions{})
			if err != nil {
				return 0, err
			}
			n += len(list.Items)
		}
	}
	return n, nil
}

// lines returns the results; none if nothing of Gatekeeper is installed.
func (g mutators) lines() []Line {
	if g.mode == "off" {
		return g.unused()
	}
	var lines []Line
	say := func(mark Mark, check, fact, advice string) { lines = append(lines, Line{mark, check, fact, advice}) }
	switch {
	case g.list == nil:
		say(Warning, mutatorsCheck, "mapd has not said yet what has become of them", "see whether a replica holds the lease, and its log")
		return lines
	case g.list.Mode != g.mode:
		say(Warning, mutatorsCheck, fmt.Sprintf("mapd should run them with --legacy=%s, and what it says is of %s", g.mode, g.list.Mode),
			"see whether a replica holds the lease, and its log")
	}
	for _, p := range g.list.Problems {
		say(Bad, mutatorsCheck, p, "see the rights in manifests/overlays/legacy, and mapd's log")
	}
	running, native := 0, 0
	var off []feature.Line
	for _, m := range g.list.Lines {
		switch {
		case gatekeeper.Bad(m):
			off = append(off, m)
		case m.State == gatekeeper.MutatorNative:
			native++
		default:
			running++
		}
	}
	lines = append(lines, notRunning(off)...)
	lines = append(lines, g.leftPolicies()...)
	switch {
	case running > 0 && !g.entry:
		say(Bad, mutatorsCheck, fmt.Sprintf("no entry %s, so without effect: %d", gatekeeper.EntryName, running),
			"mapd writes the entries within a second, but new ones only while a replica is ready: see its log")
	case len(lines) > 0:
	case running+native == 0:
		say(OK, mutatorsCheck, "none yet", "")
	case g.mode == "shadow":
		say(OK, mutatorsCheck, fmt.Sprintf("%d looked at and not applied (--legacy=shadow)", running), "")
	case g.mode == "native":
		say(OK, mutatorsCheck, fmt.Sprintf("%d by policies, %d by mapd (--legacy=native)", native, running), "")
	default:
		say(OK, mutatorsCheck, fmt.Sprintf("%d running", running), "")
	}
	if g.rival != "" && (g.mode == "on" || g.mode == "native") {
		say(Warning, mutatorsCheck, "Gatekeeper mutates as well, by "+g.rival+
			": harmless only while both run the same mutators, because then the second finds nothing left to do; what one of them refuses is refused",
			"when mapd does what you expect, turn off mutation in Gatekeeper (disableMutation in its chart); until then --legacy=shadow changes nothing")
	}
	return lines
}

// leftPolicies reports policies that were written for mutators and that mapd no longer updates.
func (g mutators) leftPolicies() []Line {
	if g.live == 0 || g.mode == "native" {
		return nil
	}
	fact := fmt.Sprintf("%s of an earlier --legacy=native", words.Count(g.live, "policy", "policies"))
	if g.mode == "on" {
		return []Line{{Warning, mutatorsCheck, fact + ", which mapd removes once it runs the mutators itself", "if this stays so, see its log and the rights in manifests/overlays/legacy"}}
	}
	return []Line{{Warning, mutatorsCheck, fact + " still in force, and nobody keeps them true to the mutators (--legacy=" + g.mode + ")",
		"--legacy=native keeps them, --legacy=on removes them, or: kubectl delete map,mapb -l " + nativepolicies.LiveLabel}}
}

// unused returns the results if mapd does not run mutators.
func (g mutators) unused() []Line {
	switch {
	case g.live > 0:
		return g.leftPolicies()
	case g.stored == 0:
		return nil
	case g.rival != "":
		return []Line{{OK, mutatorsCheck, fmt.Sprintf("%d, which Gatekeeper runs and mapd does not (--legacy=off)", g.stored), ""}}
	}
	return []Line{{Warning, mutatorsCheck, fmt.Sprintf("nobody runs the %d there are", g.stored),
		"apply manifests/overlays/legacy for mapd to run them"}}
}

// notRunning returns a line for each mutator that does not run, up to ten, and one for the others.
// A mutator that is off is only a warning, because that may be intended.
func notRunning(off []feature.Line) []Line {
	const most = 10
	var lines []Line
	var more []string
	worst := Warning
	for _, m := range off {
		mark := Bad
		if m.State == gatekeeper.MutatorOff {
			mark = Warning
		}
		if len(lines) < most {
			lines = append(lines, Line{mark, "mutator " + m.ID, m.State + ": " + m.Text, ""})
			continue
		}
		more = append(more, m.ID)
		if mark == Bad {
			worst = Bad
		}
	}
	if len(more) > 0 {
		lines = append(lines, Line{worst, mutatorsCheck, "not running either: " + shortList(more),
			"kubectl -n " + namespace + " get configmap " + gatekeeper.MutatorsName + " -o yaml"})
	}
	return lines
}
