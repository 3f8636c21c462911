package main

import "github.com/spf13/cobra"

func newUninstall(s streams) *cobra.Command { return &cobra.Command{Use: "uninstall"} }
