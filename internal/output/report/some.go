package report

import (
	"fmt"
	"strings"
)

// Some returns the first names of a list, and how many more there are.
func Some(names []string) string {
	const most = 10
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}
