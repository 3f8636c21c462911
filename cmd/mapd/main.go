// Command mapd evaluates MutatingAdmissionPolicies: on files (eval) and as an admission webhook
// (serve). mapd help lists all commands.
package main

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/mapd-project/mapd/pkg/lookup"
)

func main() { os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }

// streams are the streams of a command: data goes to out, messages go to err.
type streams struct {
	in       io.Reader
	out, err io.Writer
}

func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	out := &written{w: stdout}
	stdout = out
	root := newRoot(streams{stdin, stdout, stderr})
	root.SetArgs(spelled(args))
	cmd, err := root.ExecuteC()
	if err == nil && out.err != nil {
		err = out.err // cobra prints help and ignores the error
	}
	return exitCode(stderr, cmd, err)
}

// group is a list of commands under one heading of the help.
type group struct {
	id, title string
	commands  []*cobra.Command
}

// goFlags are flags of go test that mapd test accepts with one dash, too.
var goFlags = []string{"-run", "-count", "-parallel"}

// spelled returns the arguments of mapd test with two dashes before goFlags.
func spelled(args []string) []string {
	if len(args) == 0 || args[0] != "test" {
		return args
	}
	out := slices.Clone(args)
	for i, arg := range out {
		if arg == "--" {
			break
		}
		if name, _, _ := strings.Cut(arg, "="); slices.Contains(goFlags, name) {
			out[i] = "-" + arg
		}
	}
	return out
}

// newRoot returns the command mapd with all commands below it.
func newRoot(s streams) *cobra.Command {
	root := &cobra.Command{
		Use:   "mapd",
		Short: "MutatingAdmissionPolicies outside the API server",
		Long: `mapd runs Kubernetes MutatingAdmissionPolicies as an API server of 1.37 would:
on manifests, to see what a policy does, and as an admission webhook.`,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          unknownCommand,
	}
	// cobra's own version flag would link text/template, and with it every method of every
	// type.
	showVersion := root.Flags().BoolP("version", "v", false, "print the version")
	root.RunE = func(cmd *cobra.Command, _ []string) error {
		if *showVersion {
			_, err := fmt.Fprint(s.out, versionText())
			return err
		}
		return cmd.Help()
	}
	for _, g := range commands(s) {
		root.AddGroup(&cobra.Group{ID: g.id, Title: g.title})
		for _, c := range g.commands {
			c.GroupID = g.id
			root.AddCommand(c)
		}
	}
	root.SetHelpCommandGroupID("tools")
	root.SetCompletionCommandGroupID("tools")
	root.SetFlagErrorFunc(flagError)
	addCompletion(root)
	root.SetIn(s.in)
	root.SetOut(s.out)
	root.SetErr(s.err)
	addHelp(root) // remembers where the output goes
	return root
}

// written is a writer that keeps the first error.
type written struct {
	w   io.Writer
	mu  sync.Mutex
	err error
}

func (w *written) Write(p []byte) (int, error) {
	n, err := w.w.Write(p)
	if err != nil {
		w.mu.Lock()
		w.err = cmp.Or(w.err, err)
		w.mu.Unlock()
	}
	return n, err
}

// addHelp replaces the help and completion commands of cobra, which exit with 0 for an unknown
// name.
func addHelp(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() {
		switch c.Name() {
		case "help":
			c.Run = nil
			c.RunE = func(_ *cobra.Command, args []string) error {
				of, rest, err := root.Find(args)
				if err == nil && len(rest) > 0 {
					err = unknownCommand(of, rest)
				}
				if err != nil {
					return err
				}
				of.InitDefaultHelpFlag()
				return of.Help()
			}
		case "completion":
			c.Args = unknownCommand
			c.RunE = func(c *cobra.Command, _ []string) error { return c.Help() }
		}
	}
}

// unknownCommand returns an error for an unknown command, with the most similar one.
func unknownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	var names []string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
		}
	}
	if near := lookup.Nearest(args[0], names); near != "" {
		return usagef("unknown command %q; did you mean %s?", args[0], near)
	}
	if cmd.HasParent() {
		return usagef("unknown command %q; %s has: %s", args[0], cmd.CommandPath(), strings.Join(names, ", "))
	}
	return usagef("unknown command %q; mapd --help lists them", args[0])
}
