package translate

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/mapd-project/mapd/pkg/legacy"
)

// Where a policy came from, on the policy and on its binding. The labels are
// there if they say it of all its mutators.
const (
	fromKindLabel  = "mapd.dev/from-kind"
	fromNameLabel  = "mapd.dev/from-name"
	fromAnnotation = "mapd.dev/from"
)

// reservedSuffix is of names that API servers keep for policies from files.
const reservedSuffix = ".static.k8s.io"

// uniqueNames names each unit after its mutators, so that a name tells what it was
// and stays when others come and go. Names of mutators that came from files need
// not be names of Kubernetes; what had to be changed for it and is then no longer
// the only one gets a hash of the original.
func uniqueNames(units [][]*legacy.Mutator) []string {
	taken := map[string]int{}
	names, exact := make([]string, len(units)), make([]bool, len(units))
	for i, ms := range units {
		names[i], exact[i] = unitName(ms)
		taken[names[i]]++
	}
	for i, ms := range units {
		if taken[names[i]] > 1 && !exact[i] {
			names[i] = cut(names[i], validation.DNS1123SubdomainMaxLength-9) + "-" + hash(ms)
		}
	}
	return names
}

// unitName reports also whether everything in the name is as the mutator has it.
func unitName(ms []*legacy.Mutator) (name string, exact bool) {
	name, exact = mutatorName(ms[0])
	switch len(ms) {
	case 1:
		return name, exact
	case 2:
		second, _ := mutatorName(ms[1])
		name += "-and-" + second
	default:
		name += "-and-" + strconv.Itoa(len(ms)-1) + "-more"
	}
	return cut(name, validation.DNS1123SubdomainMaxLength), false
}

func mutatorName(m *legacy.Mutator) (name string, exact bool) {
	plain := strings.ToLower(string(m.Kind)) + "-" + m.Name
	name = subdomain(plain)
	return name, name == plain
}

// subdomain makes a DNS subdomain of what begins with a letter.
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

// origin gives the labels and annotations that say where a policy came from.
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
