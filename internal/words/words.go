// Package words has helpers for messages to people: a number with its noun, the first few of many
// names, and the beginning of a long text.
package words

import (
	"fmt"
	"strconv"
	"strings"
)

// Count returns "1 policy" or "2 policies".
func Count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + many
}

// Some returns names, separated by commas; of more than most, the first ones and how many
// others there are: "a, b and 3 more".
func Some(names []string, most int) string {
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}

// Cut returns s or, if it has more than most bytes, its beginning as valid UTF-8 with an ellipsis.
func Cut(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
