package reports

import (
	"fmt"
	"strings"

	"github.com/mapd-project/mapd/internal/operate/audit"
	"github.com/mapd-project/mapd/internal/words"
)

// Bounds of reports, which an API server has to store and mapd has to keep in memory. The bounds
// of one report keep it below the 1.5 MiB that etcd accepts. They also limit a namespace, which
// may belong to one tenant, so that it does not use up what other namespaces need.
const (
	maxResults = 1000      // of one report
	maxBytes   = 600 << 10 // of its results
	maxAll     = 16 << 20  // of the results of all reports
	maxReports = 10_000
	maxMessage = 300
	// resultBytes is roughly the size of a result without the texts that entry.size adds.
	resultBytes = 320
)

// The values of the field result in both APIs.
const (
	resultFail  = "fail"  // an enforced policy would change the object, or refuse it
	resultWarn  = "warn"  // a policy in shadow or warn would change it
	resultError = "error" // the policy fails for it
	resultSkip  = "skip"
)

// The values of the field severity, by what would happen to the next write of the object.
const (
	severityHigh   = "high"   // it is refused
	severityMedium = "medium" // a policy fails and the write passes without it
	severityLow    = "low"    // the object is changed
	severityInfo   = "info"   // nothing: the policy is not enforced
)

// source is the name by which reports and results identify mapd.
const source = "mapd"

// entry is a result of a report.
type entry struct {
	policy, rule, result, severity, message string
	mode, stage                             string // of the policy
	apiVersion, kind, name, uid             string // of the object; empty: none
}

func (e *entry) size() int {
	return resultBytes + len(e.policy) + len(e.rule) + len(e.message) + len(e.stage) + len(e.apiVersion) + len(e.kind) + len(e.name) + len(e.uid)
}

// found is what an audit has found in a namespace.
type found struct {
	entries []entry
	bytes   int
	counts  map[string]int64 // by result, of all, also those that are cut
	cut     int
}

// Collector has the results of one audit by namespace, up to the bounds of reports. It keeps no
// values of objects and no messages of policies, because users who may read a report may not be
// allowed to read the objects.
type Collector struct {
	api        *API
	namespaces map[string]*found
	bytes      int
	unplaced   int // results in namespaces beyond maxReports
}

// NewCollector returns a Collector for reports of an API.
func NewCollector(api *API) *Collector {
	return &Collector{api: api, namespaces: map[string]*found{}}
}

// Add adds a result of the audit.
func (c *Collector) Add(r *audit.Result) {
	object := entry{apiVersion: r.APIVersion, kind: r.Kind, name: r.Name, uid: string(r.UID)}
	add := func(e entry) {
		e.apiVersion, e.kind, e.name, e.uid = object.apiVersion, object.kind, object.name, object.uid
		c.add(r.Namespace, e)
	}
	if r.Error != "" {
		add(entry{policy: source, rule: "evaluate", result: resultError, severity: severityMedium, message: "the object could not be evaluated; mapd audit says why"})
		return
	}
	explained := r.Denied == ""
	for i := range r.By {
		a := &r.By[i]
		e := entry{policy: a.Policy, rule: a.Binding, mode: a.Mode, stage: a.Stage}
		enforced := a.Mode == ""
		switch {
		case a.Error != "":
			e.result, e.severity, e.message = resultError, severityMedium, "the policy fails for the object, which is written without it; mapd audit says why"
			switch {
			case !enforced:
				e.severity, e.message = severityInfo, "the policy fails for the object, and is not enforced; mapd audit says why"
			case r.Denied != "":
				e.severity, e.message = severityHigh, "the policy fails for the object, and a write would be denied; mapd audit says why"
				explained = true
			}
		case enforced:
			e.result, e.severity, e.message = resultFail, severityLow, changes(a)
		default:
			e.result, e.severity, e.message = resultWarn, severityInfo, changes(a)
		}
		add(e)
	}
	if !explained {
		add(entry{policy: source, rule: "admission", result: resultFail, severity: severityHigh, message: "a write of the object would be denied; mapd audit says why"})
	}
}

// changes says which fields a policy would change.
func changes(a *audit.Actor) string {
	text := "would change " + strings.Join(a.Fields, ", ")
	if len(text) > maxMessage {
		text = words.Cut(text, maxMessage) + fmt.Sprintf(" … (%d fields)", len(a.Fields))
	}
	return text
}

// end adds an entry for each kind whose objects could not be listed.
func (c *Collector) end(r *audit.Report) {
	for _, k := range r.Kinds {
		if k.Unreadable != "" {
			c.add("", entry{policy: source, rule: "list", result: resultError, severity: severityMedium, message: k.Resource + " could not be read, so results of these objects are missing"})
		}
	}
}

func (c *Collector) add(namespace string, e entry) {
	f := c.namespaces[namespace]
	if f == nil {
		if len(c.namespaces) == maxReports {
			c.unplaced++
			return
		}
		f = &found{counts: map[string]int64{}}
		c.namespaces[namespace] = f
	}
	f.counts[e.result]++
	size := e.size()
	if len(f.entries) == maxResults || f.bytes+size > maxBytes || c.bytes+size > maxAll {
		f.cut++
		return
	}
	f.entries, f.bytes, c.bytes = append(f.entries, e), f.bytes+size, c.bytes+size
}
