package cases

import (
	"embed"
	"encoding/json"
	"fmt"
	"io/fs"
	"path"
	"strings"
	"sync"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mapd-project/mapd/test/guest"
)

//go:embed */*.txtar
var files embed.FS

// Case is one file of the corpus. Its objects are shared by everybody who
// reads the corpus and must not be modified.
type Case struct {
	// Name is the path of the file without its extension: "matching/exclude-wins".
	Name string
	// Story is the comment of the file without its directives.
	Story string
	// Section is the section of the behavioural specification the case belongs
	// to, without the sign: "7.3", "Gatekeeper 8.2". Vectors are the rows of its
	// Appendix A, or Gatekeeper's traps, that the case covers: "A24", "T3".
	Section string
	Vectors []string
	// Skip maps a runner ("oracle", "engine", "e2e", "gatekeeper", "guests") to the reason
	// why the case is not for it.
	Skip map[string]string
	// Compat names the row of docs/reference/compat.md that explains why the wanted result
	// is not that of Kubernetes; CompatReason is that row in a sentence.
	Compat       string
	CompatReason string

	// Oldest and Newest are the minors of Kubernetes that the case is about; 0 is no bound.
	Oldest, Newest int

	// Policies and Bindings keep the order of the file; the other lists too.
	Policies   []*unstructured.Unstructured
	Bindings   []*unstructured.Unstructured
	Params     []*unstructured.Unstructured
	Namespaces []*unstructured.Unstructured
	CRDs       []*unstructured.Unstructured
	RBAC       []*unstructured.Unstructured

	// Mutators are Gatekeeper's; with them and without policies, objects are as
	// they are written. Config is Gatekeeper's too, nil if there is none.
	Mutators []*unstructured.Unstructured
	Config   *unstructured.Unstructured

	// Guests are Kubewarden's policies. Modules says, by its name, what the module
	// registry.example/NAME does.
	Guests  []*unstructured.Unstructured
	Modules map[string]guest.Answers

	// External has what Providers answer, by name and key. There are no others.
	External map[string]map[string]Answer

	Request RequestSpec

	// WantError is the text of FormatStatus; empty when the request is allowed.
	WantError string
	// WantObject is the object after admission, in normal form. It is the
	// request's own object when the file has no want.object.yaml, and nil when
	// an error is wanted or the request has no object.
	WantObject *unstructured.Unstructured
	// WantUnchanged says that the file has neither want.object.yaml nor
	// want.error.
	WantUnchanged bool
	// WantRounds is the number of passes, 1 or 2; 0 when the case leaves it open.
	WantRounds int
	// WantPasses is the number of passes of the mutators, 0 if they changed
	// nothing; nil when the case leaves it open.
	WantPasses *int
	// WantSteps is the text of the section want.steps, for the engine's record.
	WantSteps string
}

// Answer is what a Provider says of a key: a value or, if it is not empty, an error.
type Answer struct{ Value, Error string }

// UnmarshalJSON reads a value, or {error: TEXT}.
func (a *Answer) UnmarshalJSON(data []byte) error {
	if json.Unmarshal(data, &a.Value) == nil {
		return nil
	}
	var failure struct{ Error string }
	if err := json.Unmarshal(data, &failure); err != nil || failure.Error == "" {
		return fmt.Errorf("%s is neither a string nor {error: TEXT}", data)
	}
	a.Error = failure.Error
	return nil
}

// MarshalJSON writes what UnmarshalJSON reads.
func (a Answer) MarshalJSON() ([]byte, error) {
	if a.Error != "" {
		return json.Marshal(map[string]string{"error": a.Error})
	}
	return json.Marshal(a.Value)
}

// RequestSpec is the request of a case with every default filled in. Object
// and OldObject are in normal form: as an API server would hold them after
// decoding, see Normal.
type RequestSpec struct {
	// UID is empty in cases without mutators, where no error tells it.
	UID                string
	Operation          string
	Kind               schema.GroupVersionKind
	Resource           schema.GroupVersionResource
	SubResource        string
	RequestKind        schema.GroupVersionKind
	RequestResource    schema.GroupVersionResource
	RequestSubResource string
	Name               string
	Namespace          string
	User               authenticationv1.UserInfo
	DryRun             bool
	// Generated says that the object is one that a workload will create.
	Generated bool
	Options   map[string]any
	Object    *unstructured.Unstructured
	OldObject *unstructured.Unstructured
}

// Current is the minor whose decisions mapd makes.
const Current = 37

var loadAll = sync.OnceValues(func() ([]Case, error) {
	var all []Case
	err := fs.WalkDir(files, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.HasPrefix(name, "kyverno/") { // those are for test/kyverno
			return err
		}
		data, err := files.ReadFile(name)
		if err != nil {
			return err
		}
		c, err := Parse(strings.TrimSuffix(name, path.Ext(name)), data)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		all = append(all, *c)
		return nil
	})
	return all, err
})

// LoadOf returns the cases that are about a minor of Kubernetes, sorted by name. The files
// are parsed once.
func LoadOf(minor int) ([]Case, error) {
	all, err := loadAll()
	var of []Case
	for _, c := range all {
		if c.Oldest <= minor && (c.Newest == 0 || minor <= c.Newest) {
			of = append(of, c)
		}
	}
	return of, err
}

// Load is LoadOf the Current minor.
func Load() ([]Case, error) { return LoadOf(Current) }

// All is Load for tests and benchmarks.
func All(t testing.TB) []Case {
	t.Helper()
	return Of(t, Current)
}

// Of is LoadOf for tests.
func Of(t testing.TB, minor int) []Case {
	t.Helper()
	all, err := LoadOf(minor)
	if err != nil {
		t.Fatal(err)
	}
	return all
}
