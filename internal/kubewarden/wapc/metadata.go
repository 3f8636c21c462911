package wapc

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// metadataSection is the custom section that kwctl annotate writes.
const metadataSection = "io.kubewarden.metadata"

// Metadata is what the author of a policy says about it. Absent fields are nil; a module without
// annotation has no fields.
type Metadata struct {
	ProtocolVersion          *string           `json:"protocolVersion,omitempty"`
	Rules                    []Rule            `json:"rules,omitempty"`
	Annotations              map[string]string `json:"annotations,omitempty"`
	Mutating                 *bool             `json:"mutating,omitempty"`
	BackgroundAudit          *bool             `json:"backgroundAudit,omitempty"`
	ContextAwareResources    []Resource        `json:"contextAwareResources,omitempty"`
	HostCapabilities         []string          `json:"hostCapabilities,omitempty"`
	ExecutionMode            *string           `json:"executionMode,omitempty"`
	PolicyType               *string           `json:"policyType,omitempty"`
	MinimumKubewardenVersion *string           `json:"minimumKubewardenVersion,omitempty"`
}

// Rule says which requests a policy is for.
type Rule struct {
	APIGroups   []string `json:"apiGroups"`
	APIVersions []string `json:"apiVersions"`
	Resources   []string `json:"resources"`
	Operations  []string `json:"operations"`
}

// Resource is a kind of object that a policy asks to read.
type Resource struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
}

// readMetadata parses the content of the section. As for policy-server, it is an error if the
// rules or the field mutating are absent.
func readMetadata(section []byte) (Metadata, error) {
	var m Metadata
	if section == nil {
		return m, nil
	}
	if err := json.Unmarshal(section, &m); err != nil {
		return m, fmt.Errorf("the metadata is not what kwctl annotate writes: %w", err)
	}
	switch {
	case m.Rules == nil && !bytes.Contains(section, []byte(`"rules"`)):
		return m, fmt.Errorf("the metadata lacks rules")
	case m.Mutating == nil:
		return m, fmt.Errorf("the metadata lacks mutating")
	}
	if m.ProtocolVersion != nil && *m.ProtocolVersion != "v1" && *m.ProtocolVersion != "Unknown" {
		return m, fmt.Errorf("the metadata names protocol version %q; v1 is the only one", *m.ProtocolVersion)
	}
	return m, nil
}

// Mode is the execution mode of a module.
type Mode string

// The modes that metadata may name. mapd runs the first two.
const (
	ModeWaPC       Mode = "kubewarden-wapc"
	ModeWASI       Mode = "wasi"
	ModeOPA        Mode = "opa"
	ModeGatekeeper Mode = "gatekeeper"
)
