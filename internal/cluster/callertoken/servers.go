package callertoken

import "net/netip"

// maxServers bounds how many addresses are counted by name: so many of those that have sent
// a valid token, and so many of the rest.
const maxServers = 32

// others is the name for all further addresses.
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
