//go:build !server

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/mapd-project/mapd/internal/document/manifest"
	"github.com/mapd-project/mapd/internal/kubewarden/wapc"
	"github.com/mapd-project/mapd/internal/output/report"
)

func newInspect(s streams) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "inspect MODULE.wasm",
		Short: "Print the metadata of a Kubewarden policy, and whether mapd runs it",
		Long: `Print the metadata that kwctl annotate writes into a WebAssembly module, and whether mapd
runs the module: it is compiled and instantiated, but the policy is not called.

Exit codes:
  0  mapd runs the module
  2  wrong usage, or a file that cannot be read
  3  mapd does not run the module; the reason is printed`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usagef("inspect: name one module: mapd inspect MODULE.wasm")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			wasm, err := readModule(args[0])
			if err != nil {
				return usagef("%w", err)
			}
			runtime, err := wapc.New(cmd.Context(), wapc.Options{})
			if err != nil {
				return err
			}
			defer runtime.Close()
			r, err := runtime.Inspect(cmd.Context(), wasm)
			if err != nil {
				return err
			}
			if err := printReport(s.out, output, r); err != nil {
				return err
			}
			if r.Refused != "" {
				return &codedError{exitPolicy, nil}
			}
			return nil
		},
	}
	choiceVarP(cmd.Flags(), &output, "output", "o", "text", "", "text", "json", "yaml")
	return cmd
}

// readModule reads at most one byte more of a file than a module may have.
func readModule(path string) ([]byte, error) {
	f, err := manifest.Open(path, manifest.MaxFile)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, wapc.MaxModule+1))
}

func printReport(w io.Writer, output string, r wapc.Report) error {
	var text []byte
	var err error
	switch output {
	case "json":
		text, err = json.MarshalIndent(r, "", "  ")
		text = append(text, '\n')
	case "yaml":
		text, err = yaml.Marshal(r)
	default:
		text, err = reportText(r)
	}
	if err != nil {
		return err
	}
	_, err = w.Write(text)
	return err
}

// reportText prints the sections of kwctl inspect, preceded by what only mapd reports.
func reportText(r wapc.Report) ([]byte, error) {
	var b strings.Builder
	row := func(name string, value any) {
		if text := fmt.Sprint(value); text != "" {
			fmt.Fprintf(&b, "%-27s %s\n", name+":", report.Line(text))
		}
	}
	runs := "yes"
	if r.Refused != "" {
		runs = "no: " + r.Refused
	}
	row("runs", runs)
	row("digest", r.Digest)
	row("bytes", r.Bytes)
	row("execution mode", r.Mode)
	row("imports", strings.Join(r.Imports, ", "))
	m := r.Metadata
	switch {
	case r.Mode == "": // it could not be read
		return []byte(b.String()), nil
	case !r.Annotated:
		b.WriteString("\nNo Kubewarden metadata found inside of the module; kwctl annotate writes it.\n")
		return []byte(b.String()), nil
	}
	const prefix = "io.kubewarden.policy."
	details := []string{"title", "description", "author", "url", "source", "license"}
	b.WriteString("\nDetails\n")
	for _, name := range details {
		row(name, m.Annotations[prefix+name])
	}
	row("mutating", value(m.Mutating, false))
	row("background audit support", value(m.BackgroundAudit, true))
	row("context aware", len(m.ContextAwareResources) > 0)
	row("policy type", value(m.PolicyType, "kubernetes"))
	row("protocol version", strings.TrimPrefix(value(m.ProtocolVersion, "unknown"), "v")) // 1, as kwctl does
	row("minimum kubewarden version", value(m.MinimumKubewardenVersion, ""))
	var others []string
	for name := range m.Annotations {
		if short, ok := strings.CutPrefix(name, prefix); !ok || !slices.Contains(append(details, "usage"), short) {
			others = append(others, name)
		}
	}
	slices.Sort(others)
	for i, name := range others {
		if i == 0 {
			b.WriteString("\nAnnotations\n")
		}
		row(name, m.Annotations[name])
	}
	for _, part := range []struct {
		title string
		value any
		any   bool
	}{
		{"Rules", m.Rules, len(m.Rules) > 0},
		{"Context Aware", m.ContextAwareResources, len(m.ContextAwareResources) > 0},
		{"Host Capabilities", m.HostCapabilities, len(m.HostCapabilities) > 0},
	} {
		if !part.any {
			continue
		}
		text, err := yaml.Marshal(part.value)
		if err != nil {
			return nil, err
		}
		b.WriteString("\n" + part.title + "\n" + report.Printable(string(text)))
	}
	if usage := m.Annotations[prefix+"usage"]; usage != "" {
		b.WriteString("\nUsage\n" + report.Printable(strings.TrimSpace(usage)) + "\n")
	}
	return []byte(b.String()), nil
}

// value returns the value of a field, or absent if it is nil.
func value[T any](field *T, absent T) T {
	if field == nil {
		return absent
	}
	return *field
}
