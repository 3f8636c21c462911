package controllers

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	restclient "k8s.io/client-go/rest"

	"github.com/mapd-project/mapd/internal/cluster/webhookconfig"
)

// held is a configuration that a test keeps in memory, in the place of an API
// server.
type held struct {
	meta    metav1.ObjectMeta
	entries []entry
	exists  bool
	writes  int
	err     error // of the next write
}

func (s *held) configuration(name string, validating bool) *configuration {
	write := func(meta metav1.ObjectMeta, entries []entry) error {
		s.writes++
		if err := s.err; err != nil {
			s.err = nil
			return err
		}
		s.meta, s.entries, s.exists = meta, entries, true
		return nil
	}
	return &configuration{
		name: name, kind: "MutatingWebhookConfiguration", validating: validating,
		get: func() (metav1.ObjectMeta, []entry, bool) { return s.meta, s.entries, s.exists },
		create: func(_ context.Context, data []byte) error {
			var c admissionregistrationv1.MutatingWebhookConfiguration
			if err := json.Unmarshal(data, &c); err != nil {
				return err
			}
			return write(c.ObjectMeta, c.Webhooks)
		},
		replace: func(_ context.Context, meta metav1.ObjectMeta, entries []entry) error { return write(meta, entries) },
	}
}

// Whatever somebody changes in a configuration, the next write makes it what it
// should be, and there is none where nothing differs.
func TestSettle(t *testing.T) {
	w := New(Options{Namespace: "own", Lease: "lease", Service: "mapd", User: "me"})
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "own", UID: "1"}}
	s := &held{}
	c := s.configuration(webhookconfig.ConfigurationName, false)
	e := w.base()
	e.Name, e.Rules = "fail.never.mapd.dev", []admissionregistrationv1.RuleWithOperations{rule("CREATE", "", "pods")}
	c.desired = []entry{withDefaults(e, false)}
	settle := func() { w.reconcile(t.Context(), c, namespace, true, nil) }
	settle()
	if s.writes != 1 || !s.exists {
		t.Fatalf("%d writes, exists %t", s.writes, s.exists)
	}
	good := *s
	edit := func(change func(*entry)) func(*held) {
		return func(s *held) {
			e := *s.entries[0].DeepCopy()
			change(&e)
			s.entries = []entry{e}
		}
	}
	for name, change := range map[string]func(*held){
		"a url in the place of the service": edit(func(e *entry) {
			e.ClientConfig = admissionregistrationv1.WebhookClientConfig{URL: new("https://127.0.0.1:1/")}
		}),
		"another service": edit(func(e *entry) { e.ClientConfig.Service.Name = "other" }),
		"a condition more": edit(func(e *entry) {
			e.MatchConditions = append(e.MatchConditions, admissionregistrationv1.MatchCondition{})
		}),
		"no conditions":      edit(func(e *entry) { e.MatchConditions = nil }),
		"namespaceSelector":  edit(func(e *entry) { e.NamespaceSelector = &metav1.LabelSelector{} }),
		"objectSelector":     edit(func(e *entry) { e.ObjectSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}} }),
		"timeoutSeconds":     edit(func(e *entry) { e.TimeoutSeconds = new(int32(30)) }),
		"failurePolicy":      edit(func(e *entry) { e.FailurePolicy = new(admissionregistrationv1.Ignore) }),
		"reinvocationPolicy": edit(func(e *entry) { e.ReinvocationPolicy = new(admissionregistrationv1.IfNeededReinvocationPolicy) }),
		"matchPolicy":        edit(func(e *entry) { e.MatchPolicy = new(admissionregistrationv1.Exact) }),
		"sideEffects":        edit(func(e *entry) { e.SideEffects = new(admissionregistrationv1.SideEffectClassNoneOnDryRun) }),
		"review versions":    edit(func(e *entry) { e.AdmissionReviewVersions = []string{"v1beta1"} }),
		"caBundle":           edit(func(e *entry) { e.ClientConfig.CABundle = []byte("x") }),
		"rules":              edit(func(e *entry) { e.Rules = append(e.Rules, rule("*", "*", "*/*")) }),
		"an entry more":      func(s *held) { s.entries = append([]entry{{Name: "x.example.com"}}, s.entries...) },
		"no entries":         func(s *held) { s.entries = nil },
		"no labels":          func(s *held) { s.meta.Labels = nil },
		"no annotations":     func(s *held) { s.meta.Annotations = nil },
		"no owner":           func(s *held) { s.meta.OwnerReferences = nil },
		"one owner more": func(s *held) {
			s.meta.OwnerReferences = append(s.meta.OwnerReferences, metav1.OwnerReference{Name: "x"})
		},
		"a finalizer":         func(s *held) { s.meta.Finalizers = []string{"example.com/x"} },
		"a deletion, stopped": func(s *held) { s.meta.DeletionTimestamp, s.meta.Finalizers = &metav1.Time{}, []string{"x"} },
		"deletion":            func(s *held) { *s = held{} },
	} {
		t.Run(name, func(t *testing.T) {
			*s = good
			s.meta = *good.meta.DeepCopy()
			change(s)
			s.writes = 0
			settle()
			s.meta.DeletionTimestamp = nil
			if diff := cmp.Diff(good.entries, s.entries); diff != "" {
				t.Errorf("entries (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(good.meta, s.meta); diff != "" {
				t.Errorf("metadata (-want +got):\n%s", diff)
			}
			settle()
			if s.writes != 1 {
				t.Errorf("%d writes, want 1", s.writes)
			}
		})
	}

	// What others may have there stays.
	*s = good
	s.meta = *good.meta.DeepCopy()
	s.meta.Annotations["example.com/note"], s.meta.Labels["team"] = "x", "y"
	s.writes = 0
	settle()
	if s.writes != 0 {
		t.Error("labels and annotations of others are not left alone")
	}

	// A conflict is looked at again soon, and what is refused later and later.
	gr := schema.GroupResource{Resource: "mutatingwebhookconfigurations"}
	s.entries, s.err = nil, apierrors.NewConflict(gr, c.name, nil)
	settle()
	if c.retry != 0 || c.next.IsZero() {
		t.Errorf("after a conflict: retry %s, next %s", c.retry, c.next)
	}
	out := &events{rate: never{}, log: w.log}
	for i, want := range []time.Duration{retryFirst, 2 * retryFirst} {
		s.err = errors.New("refused")
		w.reconcile(t.Context(), c, namespace, true, out)
		if c.retry != want {
			t.Errorf("refusal %d: retry after %s, want %s", i, c.retry, want)
		}
	}
}

// never lets no event through.
type never struct{}

func (never) TryAccept() bool { return false }
func (never) Stop()           {}
func (never) QPS() float32    { return 0 }

// A quarrel with another writer calms down; a change of what is wanted is no quarrel.
func TestRepair(t *testing.T) {
	c := &configuration{}
	now := time.Now()
	a, b := []entry{named("a")}, []entry{named("b")}
	var got []time.Duration
	for _, e := range [][]entry{a, b, b, b, b, a, a, a, a, a, a} {
		got = append(got, c.pauseAfterWrite(now, e))
	}
	want := []time.Duration{pace, pace, pace, 2 * pace, 4 * pace, pace, 8 * pace, 16 * pace, paceMost, paceMost, paceMost}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("waits (-want +got):\n%s", diff)
	}
	if d := c.pauseAfterWrite(now.Add(quarrelOver+time.Second), a); d != pace {
		t.Errorf("after the quarrel: %s", d)
	}
}

// namespaces is an API server that has namespaces only.
func namespaces(t *testing.T, all ...corev1.Namespace) kubernetes.Interface {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		for _, ns := range all {
			if r.URL.Path == "/api/v1/namespaces/"+ns.Name {
				ns.APIVersion, ns.Kind = "v1", "Namespace"
				if err := json.NewEncoder(w).Encode(ns); err != nil {
					t.Error(err)
				}
				return
			}
		}
		if r.URL.Path == "/api/v1/namespaces/broken" {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		status := apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, r.URL.Path).Status()
		w.WriteHeader(http.StatusNotFound)
		if err := json.NewEncoder(w).Encode(status); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(server.Close)
	client, err := kubernetes.NewForConfig(&restclient.Config{Host: server.URL, ContentConfig: restclient.ContentConfig{ContentType: "application/json"}})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func TestOther(t *testing.T) {
	ns := func(name string, uid types.UID, going bool) corev1.Namespace {
		n := corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, UID: uid}}
		if going {
			n.DeletionTimestamp = &metav1.Time{Time: time.Now()}
		}
		return n
	}
	client := namespaces(t, ns("own", "1", false), ns("lives", "2", false), ns("goes", "3", true))
	meta := func(annotation, owner string, uid types.UID) *held {
		s := &held{exists: true}
		if annotation != "" {
			s.meta.Annotations = map[string]string{webhookconfig.InstallationAnnotation: annotation}
		}
		if owner != "" {
			s.meta.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Namespace", Name: owner, UID: uid}}
		}
		return s
	}
	none := &held{}
	for name, tt := range map[string]struct {
		mutating, validating *held
		adopt, owned         bool
		want                 string // the other one
	}{
		"there are none":                        {mutating: none, validating: none},
		"from the manifest":                     {mutating: meta("", "", ""), validating: meta("", "", "")},
		"its own":                               {mutating: meta("own/lease", "own", "1"), validating: meta("own/lease", "own", "1")},
		"its own, of a release before":          {mutating: meta("", "own", "1"), validating: none},
		"its own, the namespace restored":       {mutating: meta("own/lease", "own", "9"), validating: none},
		"another's":                             {mutating: meta("lives/mapd", "lives", "2"), validating: none, want: "lives/mapd"},
		"another's, of a release before":        {mutating: meta("", "lives", "2"), validating: none, want: "lives"},
		"another's, its owner removed":          {mutating: meta("lives/mapd", "", ""), validating: none, want: "lives/mapd"},
		"another lease of the namespace":        {mutating: meta("own/x", "own", "1"), validating: none, want: "own/x"},
		"its namespace is gone":                 {mutating: meta("gone/mapd", "gone", "4"), validating: none},
		"its namespace is going":                {mutating: meta("goes/mapd", "goes", "3"), validating: none},
		"its namespace is a new one":            {mutating: meta("lives/mapd", "lives", "8"), validating: none},
		"not known":                             {mutating: meta("broken/mapd", "", ""), validating: none, want: "broken/mapd"},
		"the validating one alone":              {mutating: meta("", "", ""), validating: meta("lives/mapd", "lives", "2"), want: "lives/mapd"},
		"the mutating one decides":              {mutating: meta("own/lease", "own", "1"), validating: meta("lives/mapd", "lives", "2")},
		"the mutating one decides against":      {mutating: meta("lives/mapd", "lives", "2"), validating: meta("own/lease", "own", "1"), want: "lives/mapd"},
		"adopted":                               {mutating: meta("lives/mapd", "lives", "2"), validating: none, adopt: true},
		"adopted once, and taken by another":    {mutating: meta("lives/mapd", "lives", "2"), validating: none, adopt: true, owned: true, want: "lives/mapd"},
		"its own for long, and taken by others": {mutating: meta("lives/mapd", "lives", "2"), validating: none, owned: true, want: "lives/mapd"},
	} {
		t.Run(name, func(t *testing.T) {
			w := New(Options{Kubernetes: client, Namespace: "own", Lease: "lease", Adopt: tt.adopt})
			w.owned = tt.owned
			both := []*configuration{tt.validating.configuration(webhookconfig.ValidationName, true), tt.mutating.configuration(webhookconfig.ConfigurationName, false)}
			got, ok := w.foreignOwner(t.Context(), both)
			if !ok {
				got = webhookconfig.Installation{}
			}
			if got.String() != tt.want {
				t.Errorf("other = %q, want %q", got, tt.want)
			}
			// What is another's is not written, and nothing of it is looked at before this
			// one can answer.
			if !ok && got.Namespace == "" && tt.want == "" && tt.mutating.exists {
				before := tt.mutating.writes
				w.reconcile(t.Context(), both[1], &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "own", UID: "1"}}, false, nil)
				foreign := !webhookconfig.InstallationOf(tt.mutating.meta).Is(w.installation()) && webhookconfig.InstallationOf(tt.mutating.meta).Namespace != ""
				if foreign && tt.mutating.writes != before {
					t.Error("taken over by one that cannot answer")
				}
			}
		})
	}
}

func TestSpare(t *testing.T) {
	own := webhookconfig.NotItself("me")
	notIn := &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
		{Key: corev1.LabelMetadataName, Operator: metav1.LabelSelectorOpNotIn, Values: []string{"a", "own"}}}}
	in := []entry{
		{Name: "by namespace", NamespaceSelector: notIn},
		{Name: "by user", MatchConditions: own},
		{Name: "neither", NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}},
			MatchConditions: []admissionregistrationv1.MatchCondition{{Name: own[0].Name, Expression: "true"}, {Name: "other", Expression: "true"}}},
		{Name: "nothing"},
	}
	before := entryText(t, in)
	got, changed := exempt(in, "own", own)
	if !changed {
		t.Fatal("nothing changed")
	}
	want := []metav1.LabelSelectorRequirement{{Key: corev1.LabelMetadataName, Operator: metav1.LabelSelectorOpNotIn, Values: []string{"own"}}}
	for _, e := range got[2:] {
		if diff := cmp.Diff(want, e.NamespaceSelector.MatchExpressions); diff != "" {
			t.Errorf("%s (-want +got):\n%s", e.Name, diff)
		}
		if last := e.MatchConditions[len(e.MatchConditions)-1]; last != own[0] || len(e.MatchConditions) > 2 {
			t.Errorf("%s: conditions %v", e.Name, e.MatchConditions)
		}
	}
	if got[2].NamespaceSelector.MatchLabels["a"] != "b" || got[2].MatchConditions[0].Name != "other" {
		t.Errorf("something else changed: %+v", got[2])
	}
	if diff := cmp.Diff(in[:2], got[:2]); diff != "" {
		t.Errorf("what was exempt (-before +after):\n%s", diff)
	}
	if after := entryText(t, in); after != before {
		t.Errorf("the entries given were modified:\n%s\n%s", before, after)
	}
	if _, changed := exempt(got, "own", own); changed {
		t.Error("once is not enough")
	}
}

func entryText(t *testing.T, entries []entry) string {
	t.Helper()
	text, err := json.Marshal(entries)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
