package main

import "runtime/debug"

// releaseMemory gives back what only becoming ready has taken: several times the
// heap that serving takes, and half of what the program has in memory of itself,
// which sets up packages, reads and compiles.
func releaseMemory() {
	debug.FreeOSMemory()
	releaseProgram()
}
