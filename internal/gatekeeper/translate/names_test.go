package translate

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/mapd-project/mapd/pkg/legacy"
)

func TestUniqueNames(t *testing.T) {
	a := func(name string) *legacy.Mutator { return &legacy.Mutator{Kind: legacy.Assign, Name: name} }
	of := func(name, kind string, path ...string) *legacy.Mutator {
		m := a(name)
		m.ApplyTo = []legacy.ApplyTo{{Groups: []string{""}, Versions: []string{"v1"}, Kinds: []string{kind}}}
		for _, field := range path {
			m.Location = append(m.Location, legacy.Node{Name: field})
		}
		return m
	}
	set := &legacy.Mutator{Kind: legacy.ModifySet, Name: "args"}
	tests := map[string]struct {
		in     [][]*legacy.Mutator
		prefix string
		want   []string
	}{
		"kind and name": {
			in:   [][]*legacy.Mutator{{a("demo")}, {set}},
			want: []string{"assign-demo", "modifyset-args"},
		},
		"an upper-case name from a file": {
			in:   [][]*legacy.Mutator{{a("k8spspfsGroup")}},
			want: []string{"assign-k8spspfsgroup"},
		},
		"a name of its own goes before one that was changed": {
			in:   [][]*legacy.Mutator{{a("FSGroup")}, {a("fsgroup")}, {a("fsGroup")}},
			want: []string{"assign-fsgroup-c9d3daf5", "assign-fsgroup", "assign-fsgroup-db5dc4c5"},
		},
		"dots stay, empty labels do not": {
			in:   [][]*legacy.Mutator{{a("a.b")}, {a("-c..d-.e_")}, {a("日本")}},
			want: []string{"assign-a.b", "assign--c.d.e", "assign"},
		},
		"what is kept for files of an API server": {
			in:   [][]*legacy.Mutator{{a("x.static.k8s.io")}},
			want: []string{"assign-x-static-k8s-io"},
		},
		"two whose order matters": {
			in:   [][]*legacy.Mutator{{a("sidecar"), set}},
			want: []string{"assign-sidecar-and-modifyset-args"},
		},
		"more than two are named after what they change": {
			in: [][]*legacy.Mutator{{of("a", "Pod", "spec", "initContainers", "image"), of("b", "Pod", "spec", "initContainers", "env"), of("c", "Pod", "spec", "initContainers")},
				{of("d", "Pod", "spec", "a"), of("e", "Deployment", "metadata"), of("f", "Pod", "spec", "a")},
				{of("g", "Pod", "spec", "a"), of("h", "Deployment", "spec", "b"), of("i", "Service", "spec", "a")}},
			want: []string{"pod-init-containers", "deployment-and-pod", "objects-spec"},
		},
		"two groups that change the same": {
			in: [][]*legacy.Mutator{{of("a", "Pod", "spec"), of("b", "Pod", "spec"), of("c", "Pod", "spec")},
				{of("d", "Pod", "spec"), of("e", "Pod", "spec"), of("f", "Pod", "spec")}},
			want: []string{"pod-spec-db150304", "pod-spec-c855e293"},
		},
		"a group without kinds and fields": {
			in:   [][]*legacy.Mutator{{a("a"), a("b"), a("c")}},
			want: []string{"objects"},
		},
		"a prefix": {
			in:     [][]*legacy.Mutator{{a("demo")}, {a("Demo")}, {a(strings.Repeat("x", 246))}},
			prefix: "team-a.",
			want:   []string{"team-a.assign-demo", "team-a.assign-demo-1209c80c", "team-a.assign-" + strings.Repeat("x", 239)},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := uniqueNames(tt.in, tt.prefix); !slices.Equal(got, tt.want) {
				t.Errorf("uniqueNames() = %q, want %q", got, tt.want)
			}
		})
	}
}

// Names that a prefix makes too long stay valid and different.
func TestLongNames(t *testing.T) {
	var units [][]*legacy.Mutator
	for i := 200; i < 260; i++ {
		units = append(units, []*legacy.Mutator{{Kind: legacy.Assign, Name: strings.Repeat("x", i)}})
	}
	seen := map[string]bool{}
	for _, name := range uniqueNames(units, "team-a.") {
		if errs := validation.IsDNS1123Subdomain(name); len(errs) > 0 || seen[name] || !strings.HasPrefix(name, "team-a.assign-x") {
			t.Errorf("%q: taken: %v, %v", name, seen[name], errs)
		}
		seen[name] = true
	}
}

func TestOrigin(t *testing.T) {
	long := strings.Repeat("x", 64)
	labels, annotations := origin([]*legacy.Mutator{{Kind: legacy.Assign, Name: long}})
	if labels[fromKindLabel] != "Assign" || labels[fromNameLabel] != "" || annotations[fromAnnotation] != "Assign/"+long {
		t.Errorf("origin(%q) = %v, %v, want its name in the annotation only", long, labels, annotations)
	}
	labels, annotations = origin([]*legacy.Mutator{{Kind: legacy.Assign, Name: "a"}, {Kind: legacy.ModifySet, Name: "b"}})
	if len(labels) != 0 || annotations[fromAnnotation] != "Assign/a, ModifySet/b" {
		t.Errorf("origin of two = %v, %v", labels, annotations)
	}
}

func FuzzNames(f *testing.F) {
	f.Add("demo", "Demo")
	f.Add("-..-", "a.-b")
	f.Add("日本", strings.Repeat("A.", 130))
	f.Fuzz(func(t *testing.T, a, b string) {
		names := uniqueNames([][]*legacy.Mutator{{{Kind: legacy.Assign, Name: a}}, {{Kind: legacy.AssignImage, Name: b}}}, "pre-")
		for _, name := range names {
			if errs := validation.IsDNS1123Subdomain(name); len(errs) > 0 {
				t.Errorf("uniqueNames(%q, %q) = %q: %v", a, b, name, errs)
			}
		}
		if a != b {
			same := uniqueNames([][]*legacy.Mutator{{{Kind: legacy.Assign, Name: a}}, {{Kind: legacy.Assign, Name: b}}}, "")
			if same[0] == same[1] {
				t.Errorf("uniqueNames(%q, %q) are both %q", a, b, same[0])
			}
		}
	})
}
