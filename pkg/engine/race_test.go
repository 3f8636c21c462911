//go:build race

package engine_test

// dropped is how many allocations more there may be because pools drop, at random,
// some of what they are given when races are looked for.
const dropped = 3
