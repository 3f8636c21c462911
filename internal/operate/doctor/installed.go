package doctor

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/internal/cluster/webhookconfig"
	"github.com/mapd-project/mapd/internal/operate/install"
	"github.com/mapd-project/mapd/internal/words"
)

// owner reports the installation that the webhook configurations belong to, if it is not the one
// that is checked.
func (x *examination) owner() {
	config := x.configuration()
	if config == nil {
		return
	}
	i := webhookconfig.InstallationOf(config.ObjectMeta)
	if i.Namespace == "" || i.Namespace == namespace {
		return
	}
	fact := fmt.Sprintf("%s belongs to the installation %s", configurationName, i)
	if x.deployment == nil {
		x.say(Warning, "installation", fact+", and not to one in "+namespace, "what follows may not be about that installation")
		return
	}
	x.say(Bad, "installation", fact+"; the one in "+namespace+" is passive and writes nothing", "uninstall either, or mapd install --adopt")
}

// optional are the objects of the manifest that may be missing, because an overlay or a value of
// the chart can leave them out.
var optional = []string{"mapd-view", "mapd-params-configmaps", "mapd-tls"}

// unrepaired compares the objects that mapd has no right to write with the manifest of this
// release: if they differ, mapd cannot repair them.
func (x *examination) unrepaired(ctx context.Context) {
	const check = "installed objects"
	objects, err := install.Objects("")
	if err != nil {
		x.say(Bad, check, err.Error(), "")
		return
	}
	n, unread, forbidden := 0, 0, map[string]bool{}
	var last error // why one could not be read
	before := len(x.lines)
	for _, want := range objects {
		switch want.GetKind() {
		case "CustomResourceDefinition", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding", "FlowSchema", "PriorityLevelConfiguration":
		default:
			continue // users or mapd may change these
		}
		name, live, err := install.Live(ctx, x.Dynamic, want)
		switch {
		case apierrors.IsNotFound(err) && slices.Contains(optional, want.GetName()):
		case apierrors.IsNotFound(err):
			x.say(Warning, check, name+" is not there", "mapd install makes it again")
		case apierrors.IsForbidden(err):
			forbidden[want.GetKind()] = true
		case err != nil:
			unread, last = unread+1, err
		default:
			n++
			if at := differs(withoutMeta(want), live.Object, ""); at != "" {
				x.say(Warning, check, fmt.Sprintf("%s is not what this release installs: %s", name, at[1:]),
					"somebody changed it, or it is of another release: mapd install, with --force-conflicts if somebody else owns the field")
			}
		}
	}
	if len(forbidden) > 0 {
		x.say(Unknown, check, "not all known: this user may not get "+shortList(slices.Sorted(maps.Keys(forbidden))), "needs: get on these kinds")
	}
	switch {
	case unread > 0:
		x.say(Unknown, check, "not all known: "+whyUnseen("get", words.Count(unread, "object", "objects"), last), howToSee("get", "", last))
	case len(x.lines) == before:
		x.say(OK, check, fmt.Sprintf("%d are what this release installs", n), "")
	}
}

func withoutMeta(obj *unstructured.Unstructured) map[string]any {
	m := maps.Clone(obj.Object)
	delete(m, "metadata")
	delete(m, "status")
	return m
}

// differs returns the path of the first field in which have differs from want, such as
// .rules[0].verbs, or "". It ignores fields that only have has, because servers set defaults.
func differs(want, have any, at string) string {
	switch want := want.(type) {
	case map[string]any:
		have, _ := have.(map[string]any)
		for _, k := range slices.Sorted(maps.Keys(want)) {
			v, ok := have[k]
			if !ok && !empty(want[k]) {
				return at + "." + k
			}
			if at := differs(want[k], v, at+"."+k); ok && at != "" {
				return at
			}
		}
		return ""
	case []any:
		have, _ := have.([]any)
		if len(have) != len(want) {
			return at
		}
		for i := range want {
			if at := differs(want[i], have[i], fmt.Sprintf("%s[%d]", at, i)); at != "" {
				return at
			}
		}
		return ""
	}
	if !reflect.DeepEqual(want, have) {
		return at
	}
	return ""
}

// empty reports whether a server may leave v out.
func empty(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case bool:
		return !v
	case string:
		return v == ""
	case []any:
		return len(v) == 0
	case map[string]any:
		return len(v) == 0
	}
	return false
}
