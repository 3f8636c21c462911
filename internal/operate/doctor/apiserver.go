package doctor

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"

	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/cel"
)

// server checks that the API server answers.
func (x *examination) server(ctx context.Context) bool {
	rest := x.Kubernetes.Discovery().RESTClient()
	at := rest.Get().URL()
	var info version.Info
	if err := getJSON(ctx, rest, "/version", &info); err != nil {
		x.say(Bad, "API server", err.Error(), "see whether it is up and the kubeconfig names it")
		return false
	}
	fact := fmt.Sprintf("%s at %s://%s", info.GitVersion, at.Scheme, at.Host)
	if minor, err := strconv.Atoi(strings.TrimRight(info.Minor, "+")); err == nil && info.Major == "1" && cel.Assumed(minor) != "" {
		x.say(Warning, "API server", fact+"; "+cel.Assumed(minor), "see docs/reference/versions.md")
		return true
	}
	x.say(OK, "API server", fact, "")
	return true
}

// answer is the answer to a yes-or-no question, which may be unknown.
type answer string

const (
	yes     answer = "yes"
	no      answer = "no"
	unknown answer = "unknown"
)

// native finds out whether the server runs native policies itself. Serving
// their API is not enough: the admission plugin can be off.
func (x *examination) native(ctx context.Context) {
	const check = "native policies"
	served, err := x.served(ctx)
	if err != nil {
		x.unseen(check, "get", "/apis/"+api.NativeGroup, err)
		x.executes = unknown
		return
	}
	if len(served) == 0 {
		x.executes = no
		x.say(OK, check, api.NativeGroup+" serves no MutatingAdmissionPolicy", "")
		return
	}
	x.version = served[0]
	fact := fmt.Sprintf("MutatingAdmissionPolicy is served in %s", strings.Join(served, ", "))
	body, err := x.Kubernetes.Discovery().RESTClient().Get().AbsPath("/metrics").Stream(ctx)
	if err != nil {
		x.executes = unknown
		x.say(Unknown, check, fact+"; not known whether it is run: "+whyUnseen("get", "/metrics", err), howToSee("get", "/metrics", err))
		return
	}
	defer body.Close()
	e, err := readEvidence(body)
	if err != nil {
		x.executes = unknown
		x.say(Unknown, check, fact+"; not known whether it is run: "+whyUnseen("get", "/metrics", err), "")
		return
	}
	var why string
	x.executes, why = e.answer()
	switch x.executes {
	case yes:
		x.say(OK, check, fact+", and the server runs it", "")
	case no:
		x.say(OK, check, fact+", but the server does not run it: "+why, "")
	case unknown:
		x.say(Warning, check, fact+"; not known whether it is run: "+why, "see --enable-admission-plugins and --feature-gates of the API server")
	}
}

// served returns the versions in which the server has native policies, the best
// first.
func (x *examination) served(ctx context.Context) ([]string, error) {
	var versions []string
	for _, v := range []string{"v1", "v1beta1", "v1alpha1"} {
		kinds, err := x.resources(ctx, schema.GroupVersion{Group: api.NativeGroup, Version: v})
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(kinds, func(k kind) bool { return k.resource == api.PolicyResource }) {
			versions = append(versions, v)
		}
	}
	return versions, nil
}

// evidence is what an API server's metrics say about the plugin.
type evidence struct {
	gate   answer // the feature gate
	plugin bool   // the plugin has handled a request
	others bool   // another plugin that handles the same requests has handled one
}

// answer returns whether the server runs native policies, and if it does not, or that is not
// known, why. Servers with the feature gate off have the plugin in their chain, too, where it does
// nothing; so the gate is looked at first.
func (e evidence) answer() (executes answer, why string) {
	switch {
	case e.gate == no:
		return no, "its feature gate is off"
	case e.plugin:
		return yes, ""
	case e.others:
		return no, "its admission plugin is off"
	}
	return unknown, "the API server has not admitted anything yet"
}

// readEvidence reads the answer of GET /metrics. Every plugin of the chain is
// timed for every request that it handles (k8s.io/apiserver
// pkg/admission/metrics), and MutatingAdmissionWebhook handles the same
// requests as MutatingAdmissionPolicy.
func readEvidence(r io.Reader) (evidence, error) {
	e := evidence{gate: unknown}
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		name, labels, ok := strings.Cut(lines.Text(), "{")
		if !ok {
			continue
		}
		labels, value, ok := strings.Cut(labels, "} ")
		if !ok {
			continue
		}
		has := func(label string) bool { return slices.Contains(strings.Split(labels, ","), label) }
		switch name {
		case "kubernetes_feature_enabled":
			if has(`name="MutatingAdmissionPolicy"`) {
				e.gate = yes
				if value == "0" {
					e.gate = no
				}
			}
		case "apiserver_admission_controller_admission_duration_seconds_count":
			if value != "0" && has(`type="admit"`) {
				e.plugin = e.plugin || has(`name="MutatingAdmissionPolicy"`)
				e.others = e.others || has(`name="MutatingAdmissionWebhook"`)
			}
		}
	}
	return e, lines.Err()
}
