package lookup

import "strings"

// Nearest returns the name that somebody may have meant who wrote another one, "" if
// none is near: a third of what was written may be wrong. Of names that are equally
// near it returns the first in alphabetical order.
func Nearest(written string, names []string) string {
	best, distance := "", len(written)/3+1
	for _, name := range names {
		d := edits(written, name, distance+1)
		if strings.EqualFold(written, name) {
			d = 0
		}
		if d < distance || d == distance && best != "" && name < best {
			best, distance = name, d
		}
	}
	return best
}

// edits is the number of insertions, deletions and substitutions between two
// names, or limit if it is not less.
func edits(a, b string, limit int) int {
	if len(a)-len(b) >= limit || len(b)-len(a) >= limit {
		return limit
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return min(row[len(b)], limit)
}
