package browser

import (
	"bytes"
	"compress/flate"
	"encoding/base64"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A state is what a link carries, see web/app/src/state.ts.
type state struct {
	Documents   []text `json:"documents"`
	Objects     []text `json:"objects"`
	Old         []text `json:"old,omitempty"`
	Operation   string `json:"operation,omitempty"`
	Subresource string `json:"subresource,omitempty"`
	User        *user  `json:"user,omitempty"`
	Namespace   string `json:"namespace,omitempty"`
	Kubernetes  string `json:"kubernetes,omitempty"`
	Unbound     bool   `json:"unbound,omitempty"`
	DryRun      bool   `json:"dryRun,omitempty"`
}

type text struct {
	Name string `json:"name"`
	Text string `json:"text"`
}

type user struct {
	Username string   `json:"username,omitempty"`
	Groups   []string `json:"groups,omitempty"`
}

// fragment returns the end of a link with any JSON as its state.
func fragment(v any) string {
	return "#1." + packed(must(json.Marshal(v)))
}

func packed(data []byte) string {
	var out bytes.Buffer
	w := must(flate.NewWriter(&out, flate.BestCompression))
	must(w.Write(data))
	if err := w.Close(); err != nil {
		panic(err)
	}
	return base64.RawURLEncoding.EncodeToString(out.Bytes())
}

// unpacked reads the state of a link.
func unpacked(t *testing.T, url string) state {
	t.Helper()
	_, code, ok := strings.Cut(url, "#1.")
	if !ok {
		t.Fatalf("%.200s: no state of version 1", url)
	}
	data, err := base64.RawURLEncoding.DecodeString(code)
	if err != nil {
		t.Fatal(err)
	}
	data, err = io.ReadAll(flate.NewReader(bytes.NewReader(data)))
	if err != nil {
		t.Fatal(err)
	}
	var s state
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&s); err != nil {
		t.Fatalf("%v in %s", err, data)
	}
	return s
}

// example returns the state of a folder of examples/.
func example(t *testing.T, name string) state {
	t.Helper()
	read := func(file string) []text {
		data, err := os.ReadFile(filepath.Join(root, "examples", name, file))
		if err != nil {
			t.Fatal(err)
		}
		return []text{{file, string(data)}}
	}
	return state{Documents: read("policy.yaml"), Objects: read("objects.yaml")}
}

// An answer is that of evaluate.
type answer struct {
	Errors  []fault
	Notes   []string
	Results []struct {
		Name, Verdict, Refusal, Text, Summary string
		Error                                 *fault
		Diff                                  []struct{ Path string }
		Lines                                 []struct{ Line int }
		Steps                                 []struct{ Policy, Outcome, Reason, Error string }
	}
}

// texts returns the objects that a server would store.
func (a answer) texts() []string {
	var out []string
	for _, r := range a.Results {
		if r.Error == nil && r.Verdict != "denied" {
			out = append(out, strings.TrimRight(r.Text, "\n"))
		}
	}
	return out
}

type fault struct {
	File, Message string
	Line          int
}
