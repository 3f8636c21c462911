// argocd says what Argo CD's own code finds different between an object of Git and the same in a
// cluster, under the ignoreDifferences of an Application.
//
// It is a module of its own, because nothing else may link Argo CD. It reads one question after
// the other from standard input, each a JSON object on a line, and answers each with a line.
// TestIgnoreRules of cmd/mapd asks it, if MAPD_ARGOCD names the built program.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/argoproj/argo-cd/v3/pkg/apis/application/v1alpha1"
	"github.com/argoproj/argo-cd/v3/util/argo/diff"
	"github.com/argoproj/argo-cd/v3/util/argo/normalizers"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

type question struct {
	Rules     []v1alpha1.ResourceIgnoreDifferences
	Git, Live map[string]any
}

type answer struct {
	Differs bool
	// Git and Live are what was compared.
	Git, Live json.RawMessage `json:",omitempty"`
	Error     string          `json:",omitempty"`
}

func main() {
	in, out := json.NewDecoder(bufio.NewReader(os.Stdin)), json.NewEncoder(os.Stdout)
	for {
		var q question
		if err := in.Decode(&q); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			fmt.Fprintln(os.Stderr, "argocd:", err)
			os.Exit(1)
		}
		a, err := compare(&q)
		if err != nil {
			a.Error = err.Error()
		}
		if err := out.Encode(a); err != nil {
			fmt.Fprintln(os.Stderr, "argocd:", err)
			os.Exit(1)
		}
	}
}

// compare does what Argo CD does for an Application with its settings as they are by default.
func compare(q *question) (answer, error) {
	config, err := diff.NewDiffConfigBuilder().
		WithDiffSettings(q.Rules, nil, false, normalizers.IgnoreNormalizerOpts{}).
		WithTracking("", string(v1alpha1.TrackingMethodAnnotation)).
		WithNoCache().
		Build()
	if err != nil {
		return answer{}, err
	}
	r, err := diff.StateDiff(&unstructured.Unstructured{Object: q.Live}, &unstructured.Unstructured{Object: q.Git}, config)
	if err != nil {
		return answer{}, err
	}
	return answer{Differs: r.Modified, Git: r.PredictedLive, Live: r.NormalizedLive}, nil
}
