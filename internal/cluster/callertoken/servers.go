package callertoken

import "net/netip"

// maxServers bounds how many servers that sent a valid token are told apart, and how many
// others.
const maxServers = 32

// others is what the remaining servers are called together.
const others = "others"

// servers are the addresses that reviews came from, with the results that each has had.
type servers struct {
	known           map[netip.Prefix]map[string]bool
	valid, notValid int
	remaining       map[string]bool // results of others
}

// see returns the name of a server, and whether it has this result for the first time.
func (s *servers) see(from netip.Prefix, result string) (name string, first bool) {
	results := s.known[from]
	if results == nil {
		n := &s.notValid
		if result == valid {
			n = &s.valid // those without a token cannot take the places of those with one
		}
		if *n < maxServers {
			*n++
			results = map[string]bool{}
			s.known[from] = results
		}
	}
	name = others
	switch {
	case results == nil:
		if s.remaining == nil {
			s.remaining = map[string]bool{}
		}
		results = s.remaining
	case !from.IsValid():
		name = "unknown"
	case from.IsSingleIP():
		name = from.Addr().String()
	default:
		name = from.String()
	}
	first = !results[result]
	results[result] = true
	return name, first
}
