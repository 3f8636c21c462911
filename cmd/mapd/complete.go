package main

import (
	"maps"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/mapd-project/mapd/pkg/cel"
)

// addCompletion makes the shell complete the values of all flags of cmd and its
// subcommands: the words of a choice, minors, contexts, and files where a flag may
// name one.
func addCompletion(cmd *cobra.Command) {
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if complete := completion(f); complete != nil {
			// It only fails for a flag that has a completion function already.
			_ = cmd.RegisterFlagCompletionFunc(f.Name, complete)
		}
	})
	if cmd.ValidArgsFunction == nil && cmd.Args != nil && cmd.Args(cmd, []string{"x"}) != nil {
		cmd.ValidArgsFunction = cobra.NoFileCompletions
	}
	for _, c := range cmd.Commands() {
		addCompletion(c)
	}
}

// completion returns nil for flags that the shell completes with files.
func completion(f *pflag.Flag) cobra.CompletionFunc {
	if c, ok := f.Value.(*choice); ok {
		return cobra.FixedCompletions(c.words, cobra.ShellCompDirectiveNoFileComp)
	}
	switch f.Value.Type() {
	case "bool", "duration", "int", "int32", "uint64", "float32", "float64":
		return cobra.NoFileCompletions
	}
	switch f.Name {
	case "kubernetes":
		return cobra.FixedCompletions(cel.Minors(), cobra.ShellCompDirectiveNoFileComp|cobra.ShellCompDirectiveKeepOrder)
	case "context":
		return completeContexts
	case "request-user", "request-group", "cluster", "as", "as-group", "as-uid", "request-timeout", "namespace", "subresource", "server", "listen", "url", "service", "secret", "lease",
		"pprof", "address", "review-memory", "exempt-namespace", "external-namespace", "insecure-registry", "module-source", "image", "replica":
		return cobra.NoFileCompletions
	}
	return nil
}

func completeContexts(cmd *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	if f := cmd.Flag("kubeconfig"); f != nil {
		rules.ExplicitPath = f.Value.String()
	}
	config, err := rules.Load()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return slices.Sorted(maps.Keys(config.Contexts)), cobra.ShellCompDirectiveNoFileComp
}
