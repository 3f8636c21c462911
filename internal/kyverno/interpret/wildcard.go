package interpret

import "strings"

// like reports whether s matches a pattern, in which * stands for any text and ? for one
// character.
func like(pattern, s string) bool {
	p, t := []rune(pattern), []rune(s)
	i, j, star, from := 0, 0, -1, 0
	for j < len(t) {
		switch {
		case i < len(p) && p[i] == '*':
			star, from = i, j
			i++
		case i < len(p) && (p[i] == '?' || p[i] == t[j]):
			i, j = i+1, j+1
		case star >= 0:
			from++
			i, j = star+1, from
		default:
			return false
		}
	}
	for i < len(p) && p[i] == '*' {
		i++
	}
	return i == len(p)
}

func hasWildcard(s string) bool { return strings.ContainsAny(s, "*?") }

// likeEither reports whether one of two texts matches the other as a pattern: operators of
// preconditions take patterns on both sides.
func likeEither(a, b string) bool { return like(a, b) || like(b, a) }
