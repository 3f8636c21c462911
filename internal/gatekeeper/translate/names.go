package translate

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/mapd-project/mapd/pkg/legacy"
)

// Labels and annotations of a policy and its binding that record the mutators they were made
// from. A label is set only if its value is the same for all mutators.
const (
	fromKindLabel  = "mapd.dev/from-kind"
	fromNameLabel  = "mapd.dev/from-name"
	fromAnnotation = "mapd.dev/from"
)

// reservedSuffix ends names that API servers keep for policies from files.
const reservedSuffix = ".static.k8s.io"

// uniqueNames names each unit after its mutators, so that a name shows what the
// unit was made from and stays the same when others are added or removed. Names
// of mutators in files need not be valid names; a name that had to be changed
// and is then not unique gets a hash of the original. All names begin with before.
func uniqueNames(units [][]*legacy.Mutator, before string) []string {
	taken := map[string]int{}
	names, exact := make([]string, len(units)), make([]bool, len(units))
	for i, ms := range units {
		names[i], exact[i] = unitName(ms)
		if full := before + names[i]; len(full) > validation.DNS1123SubdomainMaxLength {
			names[i], exact[i] = cut(full, validation.DNS1123SubdomainMaxLength), false
		} else {
			names[i] = full
		}
		taken[names[i]]++
	}
	for i, ms := range units {
		if taken[names[i]] > 1 && !exact[i] {
			names[i] = cut(names[i], validation.DNS1123SubdomainMaxLength-9) + "-" + hash(ms)
		}
	}
	return names
}

// unitName returns a name, and whether it contains the names of the mutators
// unchanged.
func unitName(ms []*legacy.Mutator) (name string, exact bool) {
	name, exact = mutatorName(ms[0])
	switch len(ms) {
	case 1:
		return name, exact
	case 2:
		second, _ := mutatorName(ms[1])
		name += "-and-" + second
	default:
		name = subject(ms)
	}
	return cut(name, validation.DNS1123SubdomainMaxLength), false
}

// subject names what many mutators change: the kinds, and the deepest field that leads
// to all of their locations, such as "pod-containers" or "objects-labels".
func subject(ms []*legacy.Mutator) string {
	var kinds []string
	common := fieldsOf(ms[0].Location)
	for _, m := range ms {
		kinds = append(kinds, kindNames(m)...)
		fields, n := fieldsOf(m.Location), 0
		for n < len(common) && n < len(fields) && common[n] == fields[n] {
			n++
		}
		common = common[:n]
	}
	slices.Sort(kinds)
	kinds = slices.Compact(kinds)
	name := subdomain(strings.Join(kinds, "-and-"))
	if name == "" || len(kinds) > 2 || slices.Contains(kinds, "*") {
		name = "objects"
	}
	if n := len(common); n > 0 {
		name = subdomain(name + "-" + kebab(common[n-1]))
	}
	return name
}

func fieldsOf(path legacy.Path) (names []string) {
	for _, node := range path {
		if !node.List {
			names = append(names, node.Name)
		}
	}
	return names
}

func mutatorName(m *legacy.Mutator) (name string, exact bool) {
	plain := strings.ToLower(string(m.Kind)) + "-" + m.Name
	name = subdomain(plain)
	return name, name == plain
}

// subdomain turns a string that begins with a letter into a DNS subdomain.
func subdomain(s string) string {
	s = strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == '-', r == '.':
			return r
		case r >= 'A' && r <= 'Z':
			return r - 'A' + 'a'
		}
		return '-'
	}, s)
	parts := strings.Split(s, ".")
	kept := parts[:0]
	for _, part := range parts {
		if part = strings.Trim(part, "-"); part != "" {
			kept = append(kept, part)
		}
	}
	s = cut(strings.Join(kept, "."), validation.DNS1123SubdomainMaxLength)
	if strings.HasSuffix(s, reservedSuffix) {
		s = strings.ReplaceAll(s, ".", "-")
	}
	return s
}

func cut(s string, n int) string {
	return strings.TrimRight(s[:min(len(s), n)], "-.")
}

func hash(ms []*legacy.Mutator) string {
	h := sha256.New()
	for _, m := range ms {
		h.Write([]byte(m.ID() + "\n"))
	}
	return hex.EncodeToString(h.Sum(nil)[:4])
}

// origin returns the labels and annotations that say where a policy came from.
func origin(ms []*legacy.Mutator) (labels, annotations map[string]string) {
	if len(ms) == 1 {
		m := ms[0]
		labels = map[string]string{fromKindLabel: string(m.Kind)}
		if len(validation.IsValidLabelValue(m.Name)) == 0 {
			labels[fromNameLabel] = m.Name
			return labels, nil
		}
	}
	ids := make([]string, len(ms))
	for i, m := range ms {
		ids[i] = m.ID()
	}
	return labels, map[string]string{fromAnnotation: strings.Join(ids, ", ")}
}
