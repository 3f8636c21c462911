package kyverno

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// Request is what a webhook knows about the object to mutate.
type Request struct {
	Operation       string            `json:"operation"` // CREATE or UPDATE
	Object          map[string]any    `json:"object"`
	OldObject       map[string]any    `json:"oldObject,omitempty"`
	NamespaceLabels map[string]string `json:"namespaceLabels,omitempty"`
	User            string            `json:"user,omitempty"`
	Groups          []string          `json:"groups,omitempty"`
	// ConfigMaps are those of the cluster, by namespace/name.
	ConfigMaps map[string]map[string]string `json:"configMaps,omitempty"`
}

// Result is what became of an object: the object, or the error that refuses the request.
type Result struct {
	Object map[string]any    `json:"object,omitempty"`
	Error  string            `json:"error,omitempty"`
	Rules  map[string]string `json:"rules,omitempty"` // pass, skip or error, by rule
}

// failed reports whether a rule failed.
func (r Result) failed() bool {
	return slices.ContainsFunc(slices.Collect(maps.Values(r.Rules)), func(status string) bool { return status == "error" || status == "fail" })
}

// Oracle is Kyverno. It is not safe for concurrent use.
type Oracle struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	enc *json.Encoder
	dec *json.Decoder
}

// NewOracle builds Kyverno's engine into a directory and starts it. MAPD_KYVERNO_ENGINE names a
// program that is built already.
func NewOracle(dir string) (*Oracle, error) {
	program := os.Getenv("MAPD_KYVERNO_ENGINE")
	if program == "" {
		program = filepath.Join(dir, "engine")
		build := exec.Command("go", "build", "-C", "engine", "-o", program, ".")
		if out, err := build.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("building Kyverno's engine: %w\n%s", err, out)
		}
	}
	cmd := exec.Command(program)
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return &Oracle{cmd, in, json.NewEncoder(in), json.NewDecoder(bufio.NewReader(out))}, nil
}

// Close ends the program.
func (o *Oracle) Close() error {
	return errors.Join(o.in.Close(), o.cmd.Wait())
}

func (o *Oracle) ask(question any) (Result, error) {
	var answer struct {
		Result
		Failed string `json:"failed"`
	}
	if err := o.enc.Encode(question); err != nil {
		return Result{}, err
	}
	if err := o.dec.Decode(&answer); err != nil {
		return Result{}, err
	}
	if strings.HasPrefix(answer.Failed, "panic: ") {
		return Result{Error: answer.Failed}, nil // the webhook closes the connection, which fails the request
	}
	if answer.Failed != "" {
		return Result{}, errors.New(answer.Failed)
	}
	return answer.Result, nil
}

// Use makes a policy the one that Mutate runs.
func (o *Oracle) Use(policy map[string]any) error {
	_, err := o.ask(map[string]any{"policy": policy})
	return err
}

// Mutate runs the mutate rules of the policy as Kyverno's webhook does.
func (o *Oracle) Mutate(r Request) (Result, error) { return o.ask(map[string]any{"request": r}) }
