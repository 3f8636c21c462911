package quick

// Overloads are the overloads in the table, by function.
var Overloads = func() map[string][]string {
	out := map[string][]string{}
	for name, fn := range functions {
		out[name] = fn.overloads
	}
	return out
}()
