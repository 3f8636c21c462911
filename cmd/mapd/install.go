package main

import "github.com/spf13/cobra"

func newInstall(s streams) *cobra.Command { return &cobra.Command{Use: "install"} }
