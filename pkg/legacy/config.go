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

// Config has the namespaces that Gatekeeper's Config excludes. The rest of it does
// not concern mutators.
type Config struct {
	Match []ConfigMatch
}

// ConfigMatch excludes namespaces, given by patterns, from processes.
type ConfigMatch struct {
	ExcludedNamespaces, Processes []string
}

// DecodeConfig reads a Config. Its error is an *Error. That the Config lies in
// Gatekeeper's own namespace is for the caller to check.
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

// processes are those that "*" stands for. Any other name excludes from nothing.
var processes = []string{"audit", "sync", "webhook", api.GatekeeperProcess}

// Excludes reports whether a process leaves a namespace alone (Gatekeeper spec
// §1.7, §9.2). For a Namespace, the namespace is its name; for everything else
// without one it is "", which the pattern "*" matches. A nil Config excludes
// nothing.
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

// Patterns are the namespaces that a process leaves alone, each once. A nil Config
// has none.
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

// Excluding is the mutator with more namespaces that it leaves alone.
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
