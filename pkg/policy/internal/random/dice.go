// Package random makes the random data of the tests of pkg/policy.
package random

import "math/rand/v2"

// Dice makes choices from random numbers or from fuzzed bytes.
type Dice struct {
	R    *rand.Rand
	Data []byte
}

// N returns a number below n.
func (d *Dice) N(n int) int {
	if d.R != nil {
		return d.R.IntN(n)
	}
	if len(d.Data) == 0 {
		return 0
	}
	b := d.Data[0]
	d.Data = d.Data[1:]
	return int(b) % n
}

// Pick returns one of several values.
func Pick[T any](d *Dice, from ...T) T { return from[d.N(len(from))] }
