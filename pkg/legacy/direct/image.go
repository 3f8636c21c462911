package direct

import (
	"fmt"
	"strings"

	"github.com/mapd-project/mapd/pkg/legacy"
)

// image replaces parts of an image reference (Gatekeeper spec §6).
type image struct{ set legacy.Image }

func (s image) field(obj map[string]any, name string) error {
	old, exists := obj[name]
	ref, ok := old.(string)
	if exists && !ok {
		// Gatekeeper prints the result of the failed type assertion, not the value that it
		// found.
		return fmt.Errorf("expected value at AssignImage location to be a string, got %v of type %T", ref, ref)
	}
	is := split(ref)
	replace(&is.Domain, s.set.Domain)
	replace(&is.Path, s.set.Path)
	replace(&is.Tag, s.set.Tag)
	if is.Domain != "" {
		is.Domain += "/"
	}
	obj[name] = is.Domain + is.Path + is.Tag
	return nil
}

func replace(part *string, with string) {
	if with != "" {
		*part = with
	}
}

// split splits a reference into its parts. It does not validate: every string has parts, and a
// string that was joined from parts may be split differently (Gatekeeper spec §6.1).
func split(ref string) legacy.Image {
	var parts legacy.Image
	parts.Path = ref
	if head, rest, ok := strings.Cut(ref, "/"); ok && (head == "localhost" || strings.ContainsAny(head, ".:")) {
		parts.Domain, parts.Path = head, rest
	}
	if i := strings.IndexAny(parts.Path, ":@"); i >= 0 {
		parts.Path, parts.Tag = parts.Path[:i], parts.Path[i:]
	}
	return parts
}
