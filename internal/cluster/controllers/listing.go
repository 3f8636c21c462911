package controllers

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mapd-project/mapd/internal/cluster/store"
	"github.com/mapd-project/mapd/internal/cluster/watch"
)

// listing is a ConfigMap in mapd's namespace that says what has become of objects whose
// status belongs to others.
type listing struct {
	// name is that of the ConfigMap, and key the one under which it has a line for each
	// object.
	name, key string
	// about says in the log which objects these are. One and many count them.
	about, one, many string
	// states are all states, in the order in which the summary counts them.
	states []string
	// reason and action are those of events about objects that do not do what they say.
	reason, action string
	// read returns what there is to list, and false while that is not known.
	read func(*store.Snapshot) (listed, bool)
}

// listed is the content of a listing.
type listed struct {
	lines    []listedObject
	problems []string // of other objects
}

// listedObject is an object and its state. bad says that it does not do what it says.
type listedObject struct {
	object          *unstructured.Unstructured
	id, state, text string
	bad             bool
}

// data is the ConfigMap's content: a summary, and a line for each object.
func (l *listing) data(now listed) map[string]string {
	count, width, states := map[string]int{}, 0, 0
	for _, o := range now.lines {
		count[o.state]++
		width, states = max(width, len(o.id)), max(states, len(o.state))
	}
	summary := fmt.Sprintf("%d %s", len(now.lines), l.many)
	if len(now.lines) == 1 {
		summary = "1 " + l.one
	}
	sign := ": "
	for _, state := range l.states {
		if count[state] > 0 {
			summary += fmt.Sprintf("%s%d %s", sign, count[state], state)
			sign = ", "
		}
	}
	var b strings.Builder
	for i, o := range now.lines {
		if b.Len() > maxList {
			fmt.Fprintf(&b, "and %d more\n", len(now.lines)-i)
			break
		}
		b.WriteString(strings.TrimRight(fmt.Sprintf("%-*s  %-*s  %s", width, o.id, states, o.state, line(o.text)), " ") + "\n")
	}
	out := map[string]string{keySummary: summary, l.key: b.String()}
	var problems strings.Builder
	for i, p := range now.problems {
		if b.Len()+problems.Len() > maxList {
			fmt.Fprintf(&problems, "and %d more\n", len(now.problems)-i)
			break
		}
		problems.WriteString(line(p) + "\n")
	}
	if len(now.problems) > 0 {
		out[keyProblems] = problems.String()
	}
	return out
}

// keep keeps the ConfigMap of a listing what it should be until ctx is done, and makes
// events of objects that do not do what they say. notified receives a value after each
// snapshot.
func (w *Writer) keep(ctx context.Context, l *listing, notified <-chan struct{}, out *events) {
	said := map[types.UID]string{}
	var tries attempts
	for {
		pause := listEvery
		if now, ok := l.now(w.o.Store.Snapshot()); ok {
			err := w.writeConfigMap(ctx, l.name, l.data(now))
			if ctx.Err() != nil {
				return
			}
			wait, news := tries.ended(err, retryMost)
			if news {
				w.log.Error("what has become of "+l.about+" is not written", "configmap", l.name, "error", err)
			}
			if err == nil {
				l.announce(now, said, out)
			} else {
				pause = wait
			}
		}
		if !watch.Sleep(ctx, listPause, nil, nil) || !watch.Sleep(ctx, pause, notified, nil) {
			return
		}
	}
}

func (l *listing) now(s *store.Snapshot) (listed, bool) {
	if s == nil {
		return listed{}, false
	}
	return l.read(s)
}

// writeConfigMap writes a ConfigMap of mapd's namespace unless it has the data already.
func (w *Writer) writeConfigMap(ctx context.Context, name string, want map[string]string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	client := w.o.Kubernetes.CoreV1().ConfigMaps(w.o.Namespace)
	live, err := client.Get(ctx, name, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	if err == nil && live.Data[keyProblems] == want[keyProblems] {
		same := true // what others have put there besides is theirs
		for key, text := range want {
			same = same && live.Data[key] == text
		}
		if same {
			return nil
		}
	}
	data, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": name, "labels": labels()}, "data": want,
	})
	if err != nil {
		return err
	}
	_, err = client.Patch(ctx, name, types.ApplyPatchType, data, metav1.PatchOptions{FieldManager: fieldManager, Force: new(true)})
	return err
}

// announce makes events of the objects that do not do what they say. said has what was
// announced of each.
func (l *listing) announce(now listed, said map[types.UID]string, out *events) {
	there := map[types.UID]bool{}
	for _, o := range now.lines {
		about := o.object
		there[about.GetUID()] = true
		if about.GetNamespace() != "" {
			continue // mapd has no right to write events everywhere
		}
		text := ""
		if o.bad {
			text = line(o.text)
		}
		if text != "" && said[about.GetUID()] != text {
			out.warn(corev1.ObjectReference{
				APIVersion: about.GetAPIVersion(), Kind: about.GetKind(), Name: about.GetName(), UID: about.GetUID(),
			}, l.reason, l.action, text)
		}
		said[about.GetUID()] = text
	}
	maps.DeleteFunc(said, func(uid types.UID, _ string) bool { return !there[uid] })
}
