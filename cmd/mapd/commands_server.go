//go:build server

package main

import "github.com/spf13/cobra"

// commands returns the commands of the image for clusters, whose program only serves: the
// linker leaves out what no command reaches.
func commands(s streams) []group {
	return []group{
		{"run", "Run policies:", []*cobra.Command{newServe(s)}},
		{"tools", "Tools:", []*cobra.Command{newVersion(s)}},
	}
}
