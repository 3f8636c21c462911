package webhook

import (
	"fmt"
	"strings"
	"unicode"

	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/engine"
	"github.com/mapd-project/mapd/pkg/tree"
)

// An API server cuts warnings to 256 characters each once they have more than
// 4,096 together (k8s.io/apiserver/pkg/endpoints/filters/warning.go), and
// warnings of other webhooks need room too.
const (
	maxWarning  = 256     // bytes of one
	maxWarnings = 4 << 10 // bytes of all
)

// shadowWarnings returns warnings about what a stage that is not enforced, or policies that are
// not, would have done: all, or only those in mode warn.
func shadowWarnings(r *engine.Record, all bool) []string {
	var did acts
	var out, refusals []string
	if r.Stage.Mode == api.Warn || all && r.Stage.Mode == api.Shadow {
		did.add(r.Steps, r.Changed)
		if r.Status != nil {
			refusals = append(refusals, "mapd: "+r.Stage.Name+" would refuse this: "+r.Status.Message)
		}
	}
	for i := range r.Shadows {
		if s := &r.Shadows[i]; s.Mode == api.Warn || all {
			did.addShadow(s)
			if s.Status != nil {
				refusals = append(refusals, "mapd: "+actorWords(r.Stage.Member, actorName{s.Policy, s.Binding})+" would refuse this: "+s.Status.Message)
			}
		}
	}
	out = did.mutated.warnings(r.Stage.Member, "would change")
	return append(out, refusals...)
}

// actorWords returns the words for an actor in a warning.
func actorWords(member string, n actorName) string {
	if n.binding == "" {
		return fmt.Sprintf("%s %q", member, cut(n.policy, maxWarning/2))
	}
	return fmt.Sprintf("%s %q with binding %q", member, cut(n.policy, maxWarning/4), cut(n.binding, maxWarning/4))
}

func (a *actors) warnings(member, verb string) []string {
	out := make([]string, 0, len(a.list))
	for i := range a.list {
		actor := &a.list[i]
		s := "mapd: " + actorWords(member, actor.actorName) + " " + verb + " "
		const reserve = len("and 1000000 more")
		if len(actor.paths) > 0 {
			s += actor.pathList(max(maxWarning-len(s)-reserve, maxWarning/8), tree.Field)
		} else {
			s += "the object"
		}
		out = append(out, s)
	}
	return out
}

// boundWarnings returns warnings that the server passes on unchanged: without control
// characters, for which a server drops a warning, and within the server's limits on length.
func boundWarnings(list []string) []string {
	if len(list) == 0 {
		return nil
	}
	const reserve = len("mapd: and 1000000 more warnings")
	out := make([]string, 0, min(len(list), maxWarnings/32))
	size := 0
	for i, s := range list {
		s = cut(printable(s), maxWarning)
		last := i == len(list)-1
		if size+len(s) > maxWarnings-reserve && (!last || size+len(s) > maxWarnings) {
			return append(out, fmt.Sprintf("mapd: and %d more warnings", len(list)-i))
		}
		size += len(s)
		out = append(out, s)
	}
	return out
}

// printable replaces characters that a header cannot hold, and those that change the direction
// in which a terminal shows text.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) {
			return unicode.ReplacementChar
		}
		return r // also for bytes that are not valid UTF-8
	}, s)
}
