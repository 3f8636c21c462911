package reports

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/mapd-project/mapd/internal/operate/audit"
	"github.com/mapd-project/mapd/internal/words"
	"github.com/mapd-project/mapd/pkg/api"
)

// API is one of the APIs for reports.
type API struct {
	// Name is that of the API in flags.
	Name              string
	group, version    string
	kind, clusterKind string
	// limits: reports of this API have the fields source and configuration.limits.
	limits bool
}

// apis are the known APIs, the preferred one first.
var apis = []*API{
	{"openreports", "openreports.io", "v1alpha1", "Report", "ClusterReport", true},
	{"policyreport", "wgpolicyk8s.io", "v1alpha2", "PolicyReport", "ClusterPolicyReport", false},
}

// Names returns the names of the known APIs.
func Names() []string {
	var names []string
	for _, a := range apis {
		names = append(names, a.Name)
	}
	return names
}

// Named returns the API with a name, nil if there is none.
func Named(name string) *API {
	if at := slices.IndexFunc(apis, func(a *API) bool { return a.Name == name }); at >= 0 {
		return apis[at]
	}
	return nil
}

const (
	// reportName is the name of each report. mapd writes one for each namespace.
	reportName = "mapd"
	// managedBy is the label by which mapd finds its own reports.
	managedBy      = "app.kubernetes.io/managed-by"
	managedByValue = "mapd"
	selector       = managedBy + "=" + managedByValue
	// category is the category of every result.
	category = "Mutation"
	// cutAnnotation has the number of results that are counted and not listed.
	cutAnnotation = "mapd.dev/results-cut"
)

// object returns the report of a namespace; "" stands for objects without a namespace. now is the
// time at which the results were found. The report has no field scope, because readers take the
// scope for the one object that all results are about.
func (c *Collector) object(namespace string, now time.Time) *unstructured.Unstructured {
	f := c.namespaces[namespace]
	u := &unstructured.Unstructured{Object: map[string]any{}}
	u.SetAPIVersion(c.api.group + "/" + c.api.version)
	u.SetKind(c.api.clusterKind)
	if namespace != "" {
		u.SetKind(c.api.kind)
		u.SetNamespace(namespace)
	}
	u.SetName(reportName)
	u.SetLabels(map[string]string{managedBy: managedByValue, "app.kubernetes.io/part-of": "mapd"})
	summary := map[string]any{}
	for _, result := range []string{"pass", resultFail, resultWarn, resultError, resultSkip} {
		summary[result] = f.counts[result]
	}
	found := map[string]any{"seconds": now.Unix(), "nanos": int64(0)}
	results := make([]any, 0, len(f.entries)+1)
	for i := range f.entries {
		results = append(results, f.entries[i].object(namespace, found))
	}
	if f.cut > 0 {
		summary[resultSkip] = int64(1)
		u.SetAnnotations(map[string]string{cutAnnotation: strconv.Itoa(f.cut)})
		where := ""
		if namespace != "" {
			where = " -n " + namespace
		}
		left := entry{policy: source, rule: "limit", result: resultSkip, severity: severityInfo, message: fmt.Sprintf("%s not listed here, but counted in the summary; mapd audit%s -o json lists all",
			words.Count(f.cut, "more result is", "more results are"), where)}
		results = append(results, left.object(namespace, found))
	}
	u.Object["summary"], u.Object["results"] = summary, results
	if c.api.limits {
		u.Object["source"] = source
		u.Object["configuration"] = map[string]any{"limits": map[string]any{"maxResults": int64(maxResults)}}
	}
	return u
}

// object returns an entry as a result in a report. The format is the same in both APIs.
func (e *entry) object(namespace string, found map[string]any) map[string]any {
	o := map[string]any{
		"source": source, "policy": e.policy, "category": category, "result": e.result, "severity": e.severity, "scored": e.severity != severityInfo,
		"message": e.message, "timestamp": found,
	}
	if e.rule != "" {
		o["rule"] = e.rule
	}
	if e.kind != "" {
		subject := map[string]any{"apiVersion": e.apiVersion, "kind": e.kind, "name": e.name}
		if namespace != "" {
			subject["namespace"] = namespace
		}
		if e.uid != "" {
			subject["uid"] = e.uid
		}
		o["resources"] = []any{subject}
		properties := map[string]any{"mode": e.mode}
		if e.mode == "" {
			properties["mode"] = api.Enforce.String()
		}
		if e.stage != "" {
			properties["stage"] = e.stage
		}
		o["properties"] = properties
	}
	return o
}

// WriteYAML writes the reports as YAML, that of objects without a namespace first. now is when
// the results were found, and r the audit.
func (c *Collector) WriteYAML(w io.Writer, r *audit.Report, now time.Time) error {
	c.end(r)
	for _, namespace := range slices.Sorted(maps.Keys(c.namespaces)) {
		text, err := yaml.Marshal(c.object(namespace, now).Object)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(w, "---\n%s", text); err != nil {
			return err
		}
	}
	return nil
}
