package cases

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// Outcome is what a runner got for a case.
type Outcome struct {
	// Object is nil if the request had none, or was denied.
	Object *unstructured.Unstructured
	// Status is nil if the request was allowed.
	Status *metav1.Status
	// Rounds is the number of rounds of the policies; 0 if the runner cannot know.
	Rounds int
	// Passes is the number of passes of the mutators.
	Passes int
}

// FormatStatus writes a denial as the cases do: code, reason and message in
// the first line, what it is about in a second, and the causes, unless the
// message is the only one.
func FormatStatus(s *metav1.Status) string {
	if s == nil {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s\n", strings.TrimSpace(fmt.Sprint(s.Code, " ", s.Reason)), s.Message)
	d := s.Details
	if d == nil {
		return text(&b)
	}
	if d.Kind != "" || d.Name != "" {
		kind := d.Kind
		if d.Group != "" {
			kind += "." + d.Group
		}
		fmt.Fprintf(&b, "about: %s %q\n", kind, d.Name)
	}
	if len(d.Causes) != 1 || d.Causes[0].Message != s.Message {
		for _, cause := range d.Causes {
			fmt.Fprintf(&b, "cause: %s\n", cause.Message)
		}
	}
	return text(&b)
}

// text makes the text of a status comparable. The protobuf library writes
// either a space or a no-break space after "proto:", by a hash of the program,
// so that nobody relies on its errors.
func text(b *strings.Builder) string {
	return strings.TrimSpace(strings.ReplaceAll(b.String(), "proto:\u00a0", "proto: "))
}

// Diff says how an outcome differs from what the case wants; it is empty if it
// does not. Numbers are compared as JSON writes them, so that 3 and 3.0 are
// one.
func (c *Case) Diff(got Outcome) string {
	if d := cmp.Diff(c.WantError, FormatStatus(got.Status)); d != "" {
		return "error (-want +got):\n" + d
	}
	if c.WantError == "" {
		if !Same(c.WantObject, got.Object) {
			d := cmp.Diff(canonical(c.WantObject), canonical(got.Object))
			return "object (-want +got):\n" + d
		}
	}
	if c.WantPasses != nil && *c.WantPasses != got.Passes {
		return fmt.Sprintf("passes: got %d, want %d", got.Passes, *c.WantPasses)
	}
	if c.WantRounds != 0 && got.Rounds != 0 && c.WantRounds != got.Rounds {
		return fmt.Sprintf("rounds: got %d, want %d", got.Rounds, c.WantRounds)
	}
	return ""
}

// Same says whether two objects are equal once written as JSON.
func Same(a, b *unstructured.Unstructured) bool {
	// cmp.Equal takes twice as long for each level of nested lists.
	return reflect.DeepEqual(canonical(a), canonical(b))
}

func canonical(u *unstructured.Unstructured) any {
	if u == nil {
		return nil
	}
	data, err := json.Marshal(u.Object)
	if err != nil {
		return err.Error()
	}
	var v any
	d := json.NewDecoder(strings.NewReader(string(data)))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		return err.Error()
	}
	return v
}

// Rewrite returns the case file data with its want sections replaced by an
// outcome. want.steps is kept: only the engine knows it.
func (c *Case) Rewrite(data []byte, got Outcome) ([]byte, error) {
	in := txtar.Parse(data)
	out := &txtar.Archive{Comment: in.Comment}
	var steps []txtar.File
	for _, f := range in.Files {
		switch {
		case f.Name == "want.steps":
			steps = append(steps, f)
		case !strings.HasPrefix(f.Name, "want."):
			out.Files = append(out.Files, f)
		}
	}
	add := func(name, content string) {
		out.Files = append(out.Files, txtar.File{Name: name, Data: []byte(strings.TrimSpace(content) + "\n")})
	}
	switch {
	case got.Status != nil:
		add("want.error", FormatStatus(got.Status))
	case !Same(got.Object, c.Request.Object):
		content, err := yaml.Marshal(got.Object.Object)
		if err != nil {
			return nil, err
		}
		add("want.object.yaml", string(content))
	}
	switch {
	case len(c.Mutators) > 0:
		add("want.passes", fmt.Sprint(got.Passes))
	case got.Status == nil:
		add("want.rounds", fmt.Sprint(got.Rounds))
	}
	out.Files = append(out.Files, steps...)
	return txtar.Format(out), nil
}
