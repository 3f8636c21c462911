package doctor

import (
	"context"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mapd-project/mapd/internal/cluster/controllers"
	"github.com/mapd-project/mapd/internal/operate/audit"
	"github.com/mapd-project/mapd/internal/words"
)

const driftCheck = "objects from Git"

// drift reports objects applied by Argo CD or Flux that the policies would make different from
// Git. It takes them from the last audit of mapd serve --audit-interval, or else from a sample.
func (x *examination) drift(ctx context.Context) {
	config, err := x.Kubernetes.CoreV1().ConfigMaps(namespace).Get(ctx, controllers.AuditName, metav1.GetOptions{})
	switch {
	case err == nil:
		summary, drifting := audit.ReadDrift(config.Data)
		x.sayDrift(drifting, "the last audit of mapd serve: "+summary)
		return
	case !apierrors.IsNotFound(err):
		x.unseen(driftCheck, "get", "configmap "+controllers.AuditName+" in "+namespace, err)
		return
	}
	if x.Sample == nil || x.own.bound() == 0 {
		return
	}
	r, err := x.Sample(ctx)
	if err != nil {
		x.unseen(driftCheck, "list", "policies and what they match", err)
		return
	}
	var unread []string
	for _, k := range r.Kinds {
		if k.Unreadable != "" {
			unread = append(unread, k.Resource)
		}
	}
	if len(unread) > 0 {
		x.say(Unknown, driftCheck, "not all known: this user could not list "+shortList(unread), "needs: list "+strings.Join(unread, ", "))
		if r.Drifting() == "" {
			return
		}
	}
	source := fmt.Sprintf("a sample of %s, at most %d of each kind; ", words.Count(r.Objects, "object", "objects"), Sampled)
	if n := r.Failed + r.Unread; n > 0 {
		source += fmt.Sprintf("policies fail for %d of them; ", n)
	}
	x.sayDrift(r.Drifting(), source+"mapd audit has all")
}

func (x *examination) sayDrift(drifting, source string) {
	if drifting == "" {
		x.say(OK, driftCheck, "none that Argo CD or Flux applies would differ from it ("+source+")", "")
		return
	}
	x.say(Warning, driftCheck, drifting+" ("+source+")", audit.DriftAdvice)
}
