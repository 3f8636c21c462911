package controllers

import (
	"context"
	"encoding/json"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mapd-project/mapd/internal/cluster/feature"
	"github.com/mapd-project/mapd/internal/cluster/watch"
)

const (
	// listPause is the minimum time between two writes of a listing, and listEvery is how often
	// to check that it still exists.
	listPause = 250 * time.Millisecond
	listEvery = 30 * time.Second
)

// keepListing keeps the ConfigMap of a feature up to date until ctx is done. at is the index of
// the feature, and notified receives a value after each snapshot.
func (w *Writer) keepListing(ctx context.Context, at int, notified <-chan struct{}, out *events) {
	var known map[string]string // the present content; nil if it is not known
	var tries attempts
	looked := time.Time{}
	for {
		pause := listEvery
		if l := w.listing(at); l != nil {
			if time.Since(looked) >= listEvery {
				known, looked = nil, time.Now()
			}
			now, err := w.writeListing(ctx, l, known, out)
			if ctx.Err() != nil {
				return
			}
			wait, news := tries.ended(err, retryMost)
			if news {
				w.log.Error("the state of "+l.About+" is not written", "configmap", l.Name, "error", err)
			}
			if err == nil {
				known = now
			} else {
				pause = wait
			}
		}
		if !watch.Sleep(ctx, listPause, nil, nil) || !watch.Sleep(ctx, pause, notified, nil) {
			return
		}
	}
}

// listing returns the Listing of a feature in the last snapshot, nil if there is none.
func (w *Writer) listing(at int) *feature.Listing {
	s := w.o.Store.Snapshot()
	if s == nil || s.States[at] == nil {
		return nil
	}
	return s.States[at].Listing()
}

// writeListing writes the ConfigMap if its content has changed, and returns the content. For each
// object with a new problem it makes an event.
func (w *Writer) writeListing(ctx context.Context, l *feature.Listing, known map[string]string, out *events) (map[string]string, error) {
	want := l.Data()
	if known != nil && maps.Equal(known, want) {
		return known, nil
	}
	live, err := w.writeConfigMap(ctx, l.Name, want)
	if err == nil {
		announce(l, feature.ReadListing(live, l.Key), out)
	}
	return want, err
}

// writeConfigMap writes a ConfigMap of mapd's namespace unless it already has the data, and
// returns the data from before.
func (w *Writer) writeConfigMap(ctx context.Context, name string, want map[string]string) (before map[string]string, err error) {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	client := w.o.Kubernetes.CoreV1().ConfigMaps(w.o.Namespace)
	live, err := client.Get(ctx, name, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, err
	}
	if err == nil {
		before = live.Data
		if sameData(before, want) {
			return before, nil
		}
	}
	data, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": name, "labels": labels()}, "data": want,
	})
	if err != nil {
		return nil, err
	}
	_, err = client.Patch(ctx, name, types.ApplyPatchType, data, metav1.PatchOptions{FieldManager: fieldManager, Force: new(true)})
	return before, err
}

// sameData reports whether live already contains want, and no outdated keys of mapd's. Keys of
// others do not matter.
func sameData(live, want map[string]string) bool {
	for key, text := range want {
		if live[key] != text {
			return false
		}
	}
	return live[feature.KeyProblems] == want[feature.KeyProblems] && live[feature.KeyMode] == want[feature.KeyMode]
}

// announce makes an event for each object that does not do what it says, unless before has the
// same problem. mapd has no right to write events in all namespaces.
func announce(now *feature.Listing, before feature.Listing, out *events) {
	said := map[feature.Line]bool{}
	for _, o := range before.Lines {
		said[o] = true
	}
	for _, o := range now.Lines {
		text := feature.OneLine(o.Text)
		if o.Reason == "" || o.Object.GetNamespace() != "" || said[feature.Line{ID: o.ID, State: o.State, Text: text}] {
			continue
		}
		out.warn(corev1.ObjectReference{APIVersion: o.Object.GetAPIVersion(), Kind: o.Object.GetKind(), Name: o.Object.GetName(), UID: o.Object.GetUID()},
			o.Reason, now.Action, text)
	}
}
