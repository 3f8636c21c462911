package lookup

import "strings"

// Nearest returns the name that was probably meant by written, which is none of names; "" if
// none is similar: at most a third of the characters may be wrong. Of equally similar names it
// returns the first in alphabetical order.
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

// edits is the number of insertions, deletions, substitutions and swaps of neighbours
// between two names, or limit if it is not less.
func edits(a, b string, limit int) int {
	if len(a)-len(b) >= limit || len(b)-len(a) >= limit {
		return limit
	}
	last, row, next := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		next[0] = i + 1
		for j := range len(b) {
			cost := row[j]
			if a[i] != b[j] {
				cost++
			}
			next[j+1] = min(cost, next[j]+1, row[j+1]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				next[j+1] = min(next[j+1], last[j-1]+1)
			}
		}
		last, row, next = row, next, last
	}
	return min(row[len(b)], limit)
}
