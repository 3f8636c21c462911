package controllers

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/mapd-project/mapd/internal/cluster/feature"
	"github.com/mapd-project/mapd/internal/cluster/store"
	"github.com/mapd-project/mapd/internal/cluster/watch"
	"github.com/mapd-project/mapd/internal/cluster/webhookconfig"
	"github.com/mapd-project/mapd/pkg/engine"
	"github.com/mapd-project/mapd/pkg/policy"
	"github.com/mapd-project/mapd/pkg/webhook"
)

// stickers is a kind of policy that is written as a new one is: a ConfigMap named "sticker"
// puts its label on Pods. All that mapd needs to know of it is here.
type stickers struct {
	feature.Base
	mirror *watch.Mirror[*sticker]
	list   []*sticker
	state  *stickerState
	engine *engine.Engine
}

type sticker = feature.Decoded[string]

var stickerDecoder = feature.Decoder[string]{Last: true, Decode: func(u *unstructured.Unstructured) (*string, error) {
	label, ok, _ := unstructured.NestedString(u.Object, "data", "label")
	if !ok {
		return nil, errors.New("data.label is missing")
	}
	return &label, nil
}}

func (s *stickers) Name() string { return "stickers" }

func (s *stickers) Start(d feature.Deps) {
	s.engine = engine.New(d.Engine)
	s.mirror = watch.New(watch.Options[*sticker]{
		Client: d.Client, Log: d.Log, Resource: corev1.SchemeGroupVersion.WithResource("configmaps"), Selection: watch.Named("shop", "sticker"),
		Keep: stickerDecoder.Keep, Changed: d.Changed, StateChanged: d.Changed,
	})
}

func (s *stickers) Run(ctx context.Context) { s.mirror.Run(ctx) }

func (s *stickers) Update(context.Context, bool) bool {
	list := feature.Sorted(s.mirror)
	if s.mirror.Ready() != nil || s.state != nil && cmp.Equal(list, s.list, cmp.Comparer(func(a, b *sticker) bool { return a == b })) {
		return false
	}
	s.list, s.state = list, &stickerState{list}
	s.engine.Publish(engine.Stage{Name: "stickers", Member: "sticker", Round: "round", Rounds: "rounds", Runner: s.state})
	return true
}

func (s *stickers) Ready() error {
	if len(s.engine.Stages()) == 0 {
		return errors.New("no stickers are read yet")
	}
	return nil
}

func (s *stickers) State() feature.State {
	if s.state == nil {
		return nil
	}
	return s.state
}

func (s *stickers) Stages() []engine.Stage { return s.engine.Stages() }
func (s *stickers) Holds(id string) bool   { return id == "sticker" && len(s.list) > 0 }
func (s *stickers) Owns(entry string) bool { return entry == "stickers.mapd.dev" }
func (s *stickers) Admitters() map[string]webhook.Admitter {
	return map[string]webhook.Admitter{"/mutate/stickers": s.engine}
}

type stickerState struct{ list []*sticker }

func (s *stickerState) Entries(validating bool, base admissionregistrationv1.MutatingWebhook) []admissionregistrationv1.MutatingWebhook {
	if validating || len(s.list) == 0 {
		return nil
	}
	base.Name, base.SideEffects = "stickers.mapd.dev", new(admissionregistrationv1.SideEffectClassNone)
	base.AdmissionReviewVersions, base.Rules = []string{"v1"}, []admissionregistrationv1.RuleWithOperations{rule("CREATE", "", "pods")}
	return []admissionregistrationv1.MutatingWebhook{base}
}

func (s *stickerState) Listing() *feature.Listing {
	l := &feature.Listing{Name: "mapd-stickers", Key: "stickers", About: "stickers", One: "sticker", Many: "stickers", States: []string{"running", "outdated"}, Action: "Read"}
	for _, d := range s.list {
		o := feature.Line{ID: d.Object.GetName(), State: "running", Object: d.Object}
		if d.Err != nil {
			o.State, o.Text = "outdated", d.Err.Error()
		}
		l.Lines = append(l.Lines, o)
	}
	return l
}

// Run implements engine.Runner.
func (s *stickerState) Run(_ context.Context, a *engine.Admission) (result engine.Result, met bool) {
	for _, d := range s.list {
		if d.Value != nil && a.Object != nil {
			u := a.Object.DeepCopy()
			u.SetLabels(map[string]string{"sticker": *d.Value})
			result.Object, met = u.Object, true
		}
	}
	return result, met
}

// A new kind of policy is one package that implements feature.Feature, and one element of
// Options.Features: it is watched, run, waited for, called by API servers and reported.
func TestNewFeature(t *testing.T) {
	in(t, func(t *testing.T, c *cluster) {
		configMaps := corev1.SchemeGroupVersion.WithResource("configmaps")
		put := func(generation int64, data map[string]any) {
			c.Put(configMaps, "shop", "sticker", map[string]any{
				"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "sticker", "namespace": "shop", "generation": generation}, "data": data,
			})
		}
		put(1, map[string]any{"label": "blue"})
		kube, err := kubernetes.NewForConfig(c.Config())
		if err != nil {
			t.Fatal(err)
		}
		dyn, err := dynamic.NewForConfig(c.Config())
		if err != nil {
			t.Fatal(err)
		}
		features := []feature.Feature{&stickers{}}
		s := store.New(store.Options{Dynamic: dyn, Kubernetes: kube, Env: c.env, Exempt: []string{"own"}, Features: features})
		if err := s.Ready(); err == nil {
			t.Error("ready before anything was read")
		}
		w := New(Options{
			Kubernetes: kube, Dynamic: dyn, Store: s, Certificates: trusted("bundle"), Namespace: "own", Lease: "mapd", Identity: "a",
			URL: "https://mapd.example.com", Ready: s.Ready, Features: features,
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 2)
		go func() { done <- s.Run(ctx) }()
		go func() { done <- w.Run(ctx) }()
		settle := func() {
			time.Sleep(time.Minute)
			synctest.Wait()
		}
		settle()
		if err := s.Ready(); err != nil {
			t.Errorf("not ready: %v", err)
		}
		pod := func() string {
			d := s.Whole(s.Authorizer()).Admit(ctx, &policy.Request{
				Operation: admissionv1.Create, Name: "web", Namespace: "shop", Kind: schema.GroupVersionKind{Version: "v1", Kind: "Pod"},
				Resource: schema.GroupVersionResource{Version: "v1", Resource: "pods"},
				Object:   &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": "web", "namespace": "shop"}}},
			})
			return d.Object.GetLabels()["sticker"]
		}
		wants := func(what, label, entries, listing string) {
			t.Helper()
			if got := pod(); got != label {
				t.Errorf("%s: a Pod has the label %q, want %q", what, got, label)
			}
			if got := strings.Join(c.entries(mutatingResource, webhookconfig.ConfigurationName), " "); got != entries {
				t.Errorf("%s: entries %s, want %s", what, got, entries)
			}
			said := c.Get(configMaps, "own", "mapd-stickers")
			if said == nil {
				t.Fatalf("%s: there is no listing", what)
			}
			if got, _, _ := unstructured.NestedString(said.Object, "data", "stickers"); got != listing {
				t.Errorf("%s: listed %q, want %q", what, got, listing)
			}
		}
		wants("at first", "blue", "fail.never.mapd.dev stickers.mapd.dev", "sticker  running\n")
		put(2, map[string]any{})
		settle()
		wants("an invalid update", "blue", "fail.never.mapd.dev stickers.mapd.dev", "sticker  outdated  data.label is missing\n")
		if err := dyn.Resource(configMaps).Namespace("shop").Delete(ctx, "sticker", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		settle()
		wants("none", "", "fail.never.mapd.dev", "")
		cancel()
		for range 2 {
			if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		}
	})
}

// state is a feature's whose entries are known.
type state struct {
	list []admissionregistrationv1.MutatingWebhook
}

func (s *state) Listing() *feature.Listing { return nil }
func (s *state) Entries(validating bool, base admissionregistrationv1.MutatingWebhook) (out []admissionregistrationv1.MutatingWebhook) {
	for _, e := range s.list {
		if !validating {
			e.ClientConfig = base.ClientConfig
			out = append(out, e)
		}
	}
	return out
}

// As long as the objects of a feature have not been read, its entries stay what they are,
// and API servers trust the certificates of now.
func TestEntriesStay(t *testing.T) {
	for _, on := range []bool{true, false} {
		var features []feature.Feature
		if on {
			features = append(features, &stickers{})
		}
		w := New(Options{Namespace: "own", Service: "mapd", Features: features})
		var live []entry
		c := &configuration{name: webhookconfig.ConfigurationName, get: func() (metav1.ObjectMeta, []entry, bool) { return metav1.ObjectMeta{}, live, true }}
		var before asked
		for i, step := range []struct {
			name  string
			state feature.State
			want  []string
		}{
			{"not read, and there is no entry", nil, []string{}},
			{"read", &state{[]entry{named("stickers.mapd.dev", rule("CREATE", "", "pods"))}}, []string{"stickers.mapd.dev"}},
			{"not read", nil, []string{"stickers.mapd.dev"}},
			{"none", &state{}, []string{}},
		} {
			snapshot := &store.Snapshot{}
			if on {
				snapshot.States = []feature.State{step.state}
			} else {
				step.want = []string{}
			}
			now := w.askedBy(snapshot, before)
			if on && i > 0 && now.equal(before) {
				t.Errorf("%s: nothing new", step.name)
			}
			before = now
			w.derive([]*configuration{c}, now, []byte(fmt.Sprint("ca", i)), true)
			if got := names(c.desired); !cmp.Equal(got, step.want) {
				t.Errorf("feature %t: %s: entries %v, want %v", on, step.name, got, step.want)
			}
			for _, e := range c.desired {
				if got := string(e.ClientConfig.CABundle); got != fmt.Sprint("ca", i) {
					t.Errorf("%s: the bundle of %s is %s", step.name, e.Name, got)
				}
			}
			live = c.desired
		}
	}
}
