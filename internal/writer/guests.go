package writer

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mapd-project/mapd/internal/store"
	"github.com/mapd-project/mapd/internal/watch"
)

// GuestsName is the ConfigMap in mapd's namespace that says what has become of
// Kubewarden's policies. Their own status is Kubewarden's, which may be running.
const GuestsName = "mapd-kubewarden"

const keyPolicies = "policies"

// What can be said of a policy of Kubewarden's.
const (
	guestRunning = "running"
	guestLoading = "loading" // its module is fetched and compiled; until then it is as if broken
	guestBroken  = "broken"  // requests that it meets fail by its failurePolicy
	guestRefused = "refused" // what it matches is not known, so it has no effect
)

func guestState(s *store.GuestState) string {
	switch {
	case s.Err == nil:
		return guestRunning
	case s.Loading:
		return guestLoading
	case s.Undecoded:
		return guestRefused
	}
	return guestBroken
}

// guestData is the ConfigMap's content: a summary, and a line for each policy.
func guestData(s *store.GuestsState) map[string]string {
	count, width := map[string]int{}, 0
	for i := range s.Policies {
		count[guestState(&s.Policies[i])]++
		width = max(width, len(s.Policies[i].ID))
	}
	summary := fmt.Sprintf("%d policies", len(s.Policies))
	if len(s.Policies) == 1 {
		summary = "1 policy"
	}
	sign := ": "
	for _, state := range []string{guestRunning, guestLoading, guestBroken, guestRefused} {
		if count[state] > 0 {
			summary += fmt.Sprintf("%s%d %s", sign, count[state], state)
			sign = ", "
		}
	}
	var b strings.Builder
	for i := range s.Policies {
		p := &s.Policies[i]
		if b.Len() > maxList {
			fmt.Fprintf(&b, "and %d more\n", len(s.Policies)-i)
			break
		}
		b.WriteString(strings.TrimRight(fmt.Sprintf("%-*s  %-7s  %s", width, p.ID, guestState(p), line(p.Text())), " ") + "\n")
	}
	return map[string]string{keySummary: summary, keyPolicies: b.String()}
}

// keepGuests keeps the ConfigMap what it should be until ctx is done, and makes events of
// policies that do not run.
func (w *Writer) keepGuests(ctx context.Context, out *events) {
	said := map[types.UID]string{}
	wait, last := retryFirst, ""
	for {
		pause := listEvery
		if s := w.o.Store.Snapshot(); s != nil && s.Guests != nil {
			err := w.writeGuests(ctx, s.Guests)
			switch {
			case ctx.Err() != nil:
				return
			case err == nil:
				wait, last = retryFirst, ""
				announceGuests(s.Guests, said, out)
			default:
				if err.Error() != last {
					last = err.Error()
					w.log.Error("what has become of Kubewarden's policies is not written", "configmap", GuestsName, "error", err)
				}
				pause, wait = wait, min(2*wait, retryMost)
			}
		}
		if !watch.Sleep(ctx, listPause, nil, nil) || !watch.Sleep(ctx, pause, w.guestsListed, nil) {
			return
		}
	}
}

func (w *Writer) writeGuests(ctx context.Context, s *store.GuestsState) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	want := guestData(s)
	client := w.o.Kubernetes.CoreV1().ConfigMaps(w.o.Namespace)
	live, err := client.Get(ctx, GuestsName, metav1.GetOptions{})
	switch {
	case err != nil && !apierrors.IsNotFound(err):
		return err
	case err == nil && live.Data[keySummary] == want[keySummary] && live.Data[keyPolicies] == want[keyPolicies]:
		return nil
	}
	data, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": GuestsName, "labels": labels()}, "data": want,
	})
	if err != nil {
		return err
	}
	_, err = client.Patch(ctx, GuestsName, types.ApplyPatchType, data, metav1.PatchOptions{FieldManager: fieldManager, Force: new(true)})
	return err
}

// announceGuests makes events of the policies that do not run. said has what was announced
// of each.
func announceGuests(s *store.GuestsState, said map[types.UID]string, out *events) {
	now := map[types.UID]bool{}
	for i := range s.Policies {
		p := &s.Policies[i]
		about := p.Object
		now[about.GetUID()] = true
		if about.GetNamespace() != "" {
			continue // mapd has no right to write events everywhere
		}
		text := ""
		if p.Err != nil && !p.Loading {
			text = line(p.Text())
		}
		if text != "" && said[about.GetUID()] != text {
			out.warn(corev1.ObjectReference{
				APIVersion: about.GetAPIVersion(), Kind: about.GetKind(), Name: about.GetName(), UID: about.GetUID(),
			}, "PolicyNotRunning", "Load", text)
		}
		said[about.GetUID()] = text
	}
	for uid := range said {
		if !now[uid] {
			delete(said, uid)
		}
	}
}
