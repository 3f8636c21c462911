//go:build race

package main

// raceDetector says that a process takes several times its memory, because the
// race detector remembers who used it.
const raceDetector = true
