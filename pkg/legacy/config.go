package legacy

import (
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/pkg/api"
)

// ConfigGroup is the API group of a Config.
const ConfigGroup = api.ConfigGroup

// ConfigName is the name that a Config must have.
const ConfigName = "config"

// Config has the namespaces that Gatekeeper's Config excludes. Other parts of it do not affect
// mutators.
type Config struct {
	Match []ConfigMatch
}

// ConfigMatch excludes namespaces, given by patterns, from processes.
type ConfigMatch struct {
	ExcludedNamespaces, Processes []string
}

// DecodeConfig reads a Config. Its error is an *Error. The caller has to check that the Config
// is in Gatekeeper's own namespace.
func DecodeConfig(u *unstructured.Unstructured) (*Config, error) {
	r := &reader{}
	if name := u.GetName(); name != ConfigName {
		r.err = refusef("metadata.name", "config resource must have name 'config'")
	}
	top := object{r: r, in: u.Object, out: map[string]any{}}
	spec, _ := top.object("spec")
	c := &Config{Match: readEach(spec, "match", func(o object) ConfigMatch {
		return ConfigMatch{ExcludedNamespaces: o.strs("excludedNamespaces"), Processes: o.strs("processes")}
	})}
	if r.err != nil {
		r.err.Mutator = "Config/" + u.GetName()
		return nil, r.err
	}
	return c, nil
}

// processes are those that "*" stands for. An entry with any other name excludes nothing.
var processes = []string{"audit", "sync", "webhook", api.GatekeeperProcess}

// Excludes reports whether a namespace is excluded from a process (Gatekeeper spec §1.7, §9.2).
// For a Namespace object, pass its name; for other cluster-scoped objects pass "", which the
// pattern "*" matches. A nil Config excludes nothing.
func (c *Config) Excludes(process, namespace string) bool {
	if c == nil {
		return false
	}
	return slices.ContainsFunc(c.Match, func(m ConfigMatch) bool {
		return m.about(process) && slices.ContainsFunc(m.ExcludedNamespaces, func(pattern string) bool {
			return Wildcard(pattern, namespace)
		})
	})
}

// Patterns returns the patterns of namespaces that are excluded from a process, each once. A
// nil Config has none.
func (c *Config) Patterns(process string) []string {
	if c == nil {
		return nil
	}
	var out []string
	for _, m := range c.Match {
		for _, pattern := range m.ExcludedNamespaces {
			if m.about(process) && !slices.Contains(out, pattern) {
				out = append(out, pattern)
			}
		}
	}
	return out
}

// Excluding returns a copy of the mutator with more excludedNamespaces.
func (m *Mutator) Excluding(patterns []string) *Mutator {
	if len(patterns) == 0 {
		return m
	}
	c := *m
	c.Match.ExcludedNamespaces = slices.Concat(m.Match.ExcludedNamespaces, patterns)
	return &c
}

func (m ConfigMatch) about(process string) bool {
	return slices.Contains(m.Processes, process) ||
		slices.Contains(m.Processes, "*") && slices.Contains(processes, process)
}
