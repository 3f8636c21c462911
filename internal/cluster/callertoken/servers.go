package callertoken

import "net/netip"

// maxServers bounds how many addresses are counted by name: maxServers of those that have sent a
// valid token, and as many others.
const maxServers = 32

// others is the name for all further addresses.
const others = "others"

// servers has the addresses from which reviews came, with the results that each has had.
type servers struct {
	known           map[netip.Prefix]map[string]bool
	valid, notValid int
	remaining       map[string]bool // results of the addresses that are counted as others
}

// see returns the name under which a server is counted, and whether the server has this result
// for the first time.
func (s *servers) see(from netip.Prefix, result string) (name string, first bool) {
	results := s.known[from]
	if results == nil {
		n := &s.notValid
		if result == valid {
			n = &s.valid // addresses without a valid token cannot use up the room of those with one
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
