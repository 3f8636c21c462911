//go:build !server

package main

import "github.com/spf13/cobra"

// commands returns all commands. A program with the build tag server has fewer.
func commands(s streams) []group {
	return []group{
		{"first", "Begin with these:", []*cobra.Command{newEval(s), newTest(s), newLint(s), newInstall(s), newMigrate(s)}},
		{"write", "Write and test policies:", []*cobra.Command{newExpand(s), newFmt(s), newBench(s), newPlayground(s), newLSP(s)}},
		{"run", "Run policies:", []*cobra.Command{newServe(s), newSend(s), newExport(s), newInspect(s)}},
		{"render", "In pipelines that render manifests:", []*cobra.Command{newKRM(s), newPostRender(s), newSnapshot(s)}},
		{"operate", "Operate a cluster:", []*cobra.Command{newAudit(s), newBlame(s), newDoctor(s), newDebug(s), newPromote(s), newRollout(s), newTop(s), newUninstall(s)}},
		{"tools", "Tools:", []*cobra.Command{newVersion(s)}},
	}
}
