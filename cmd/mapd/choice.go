package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/mapd-project/mapd/pkg/lookup"
)

// choice is the value of a flag that accepts one of a few words, in any case. Its help, the
// error for another word, and the shell's completion list the words.
type choice struct {
	value *string
	words []string
	usual string
}

// choiceVarP adds a flag with a default value, which need not be one of words. In the help,
// usage follows the words.
func choiceVarP(fl *pflag.FlagSet, p *string, name, shorthand, value, usage string, words ...string) {
	*p = value
	fl.VarP(&choice{p, words, value}, name, shorthand, either(words)+usage)
}

func choiceVar(fl *pflag.FlagSet, p *string, name, value, usage string, words ...string) {
	choiceVarP(fl, p, name, "", value, usage, words...)
}

// recursiveVar adds the flag -R, which commands that read files have.
func recursiveVar(fl *pflag.FlagSet, p *bool) {
	fl.BoolVarP(p, "recursive", "R", false, "read directories recursively")
}

// either returns "a, b or c".
func either(words []string) string {
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

func (c *choice) String() string { return *c.value }

func (c *choice) Type() string { return "string" }

func (c *choice) Set(word string) error {
	if word == c.usual {
		*c.value = word
		return nil
	}
	i := slices.IndexFunc(c.words, func(w string) bool { return strings.EqualFold(w, word) })
	if i < 0 {
		return fmt.Errorf("must be one of %s", strings.Join(c.words, ", "))
	}
	*c.value = c.words[i]
	return nil
}

// takesPaths are the commands that take paths as arguments instead of with -f or -p.
var takesPaths = map[string]bool{"fmt": true, "lint": true, "playground": true, "test": true}

// wantedValue describes, by the type of a flag, the values that it accepts.
var wantedValue = map[string]string{
	"bool": "true or false", "int": "a whole number", "int64": "a whole number", "uint64": "a whole number", "float32": "a number", "float64": "a number", "duration": "a time, such as 30s or 5m",
}

// renamed has, for each command, the flags that had another name before: an old name is an
// error that says the new one.
var renamed = map[string]map[string]string{
	"audit":              requestFlags,
	"bench":              requestFlags,
	"eval":               requestFlags,
	"expand":             {"user": "--request-user", "group": "--request-group", "outputfile": "--output-file"},
	"send":               requestFlags,
	"debug bundle":       {"o": "--output-file", "output": "--output-file"},
	"export":             {"o": "--output-dir", "output": "--output-dir"},
	"migrate gatekeeper": {"o": "--output-dir", "output": "--output-dir", "group": "--api-group", "objects": "-f"},
}

var requestFlags = map[string]string{"user": "--request-user", "group": "--request-group"}

// dashed returns a flag with its dashes, as a user writes it.
func dashed(name string) string {
	if len(name) == 1 {
		return "-" + name
	}
	return "--" + name
}

// flagError returns err with the command to which the wrong flag was given.
func flagError(cmd *cobra.Command, err error) error {
	_, path, _ := strings.Cut(cmd.CommandPath(), " ")
	if path == "" {
		return &codedError{exitUsage, err}
	}
	var unknown *pflag.NotExistError
	if errors.As(err, &unknown) {
		if args := cmd.Flags().Args(); cmd.HasSubCommands() && len(args) > 0 {
			return unknownCommand(cmd, args)
		}
		if slices.Contains([]string{"f", "filename", "p", "policies"}, unknown.GetSpecifiedName()) && takesPaths[path] {
			return usagef("%s takes paths as arguments: mapd %s PATH...", path, path)
		}
		if now := renamed[path][unknown.GetSpecifiedName()]; now != "" {
			return usagef("%s: %s is now %s", path, dashed(unknown.GetSpecifiedName()), now)
		}
	}
	if unknown != nil && len(unknown.GetSpecifiedName()) > 1 {
		var names []string
		cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
		near := lookup.Nearest(unknown.GetSpecifiedName(), names)
		if i := slices.IndexFunc(names, func(n string) bool {
			return strings.HasPrefix(n, unknown.GetSpecifiedName()[:len(unknown.GetSpecifiedName())-1])
		}); near == "" && i >= 0 {
			near = names[i]
		}
		if near != "" {
			return usagef("%s: %w; did you mean --%s?", path, err, near)
		}
	}
	var invalid *pflag.InvalidValueError
	if errors.As(err, &invalid) {
		if want := wantedValue[invalid.GetFlag().Value.Type()]; want != "" {
			return usagef("%s: --%s %q: must be %s", path, invalid.GetFlag().Name, invalid.GetValue(), want)
		}
		if _, ok := invalid.GetFlag().Value.(*choice); ok {
			name := "--" + invalid.GetFlag().Name
			if short := invalid.GetFlag().Shorthand; short != "" {
				name = "-" + short
			}
			return usagef("%s: %s %s: %w", path, name, invalid.GetValue(), invalid.Unwrap())
		}
	}
	return usagef("%s: %w", path, err)
}
