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
	set := &legacy.Mutator{Kind: legacy.ModifySet, Name: "args"}
	tests := map[string]struct {
		in   [][]*legacy.Mutator
		want []string
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
		"more than two": {
			in:   [][]*legacy.Mutator{{a("a"), a("b"), a("c")}},
			want: []string{"assign-a-and-2-more"},
		},
		"a group and a mutator that has its name": {
			in:   [][]*legacy.Mutator{{a("a"), a("b"), a("c")}, {a("a-and-2-more")}},
			want: []string{"assign-a-and-2-more-db150304", "assign-a-and-2-more"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := uniqueNames(tt.in); !slices.Equal(got, tt.want) {
				t.Errorf("uniqueNames() = %q, want %q", got, tt.want)
			}
		})
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
		names := uniqueNames([][]*legacy.Mutator{{{Kind: legacy.Assign, Name: a}}, {{Kind: legacy.AssignImage, Name: b}}})
		for _, name := range names {
			if errs := validation.IsDNS1123Subdomain(name); len(errs) > 0 {
				t.Errorf("uniqueNames(%q, %q) = %q: %v", a, b, name, errs)
			}
		}
		if a != b {
			same := uniqueNames([][]*legacy.Mutator{{{Kind: legacy.Assign, Name: a}}, {{Kind: legacy.Assign, Name: b}}})
			if same[0] == same[1] {
				t.Errorf("uniqueNames(%q, %q) are both %q", a, b, same[0])
			}
		}
	})
}
