//go:build !race

package engine_test

const dropped = 0
