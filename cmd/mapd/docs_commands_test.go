package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
)

const commandPages = "../../docs/reference/commands"

// TestCommandPages holds docs/reference/commands to the commands and their flags: a page
// for each command, and an index. With -update it writes them.
func TestCommandPages(t *testing.T) {
	root := newRoot(streams{strings.NewReader(""), io.Discard, io.Discard})
	want := map[string]string{}
	var index strings.Builder
	index.WriteString("# Commands\n\nWhat `mapd COMMAND --help` prints, for each command. A test writes these pages from the flags.\n\n| command | |\n| --- | --- |\n")
	for _, c := range root.Commands() {
		if !c.IsAvailableCommand() || c.Name() == "help" {
			continue
		}
		fmt.Fprintf(&index, "| [%s](%s.md) | %s |\n", c.CommandPath(), c.Name(), strings.ReplaceAll(c.Short, "|", `\|`))
		want[c.Name()+".md"] = commandPage(c)
	}
	want["README.md"] = index.String()
	if *update {
		if err := os.RemoveAll(commandPages); err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(commandPages, 0o777); err != nil {
			t.Fatal(err)
		}
		for name, text := range want {
			if err := os.WriteFile(filepath.Join(commandPages, name), []byte(text), 0o666); err != nil {
				t.Fatal(err)
			}
		}
		return
	}
	files, err := os.ReadDir(commandPages)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if _, ok := want[f.Name()]; !ok {
			t.Errorf("%s is about no command", f.Name())
		}
	}
	for name, text := range want {
		got, err := os.ReadFile(filepath.Join(commandPages, name))
		if err != nil {
			t.Errorf("%v; go test ./cmd/mapd -run TestCommandPages -update writes it", err)
		} else if d := cmp.Diff(string(got), text); d != "" {
			t.Errorf("%s (-page +command); go test ./cmd/mapd -run TestCommandPages -update writes it\n%s", name, d)
		}
	}
}

// commandPage is the page of a command: a section for each command below it, with its help.
func commandPage(c *cobra.Command) string {
	var b strings.Builder
	var section func(c *cobra.Command, level int)
	section = func(c *cobra.Command, level int) {
		c.InitDefaultHelpFlag()
		var help bytes.Buffer
		c.SetOut(&help)
		_ = c.Help() // a buffer takes everything
		fmt.Fprintf(&b, "%s %s\n\n```\n%s```\n", strings.Repeat("#", level), c.CommandPath(), help.String())
		below := slices.DeleteFunc(slices.Clone(c.Commands()), func(c *cobra.Command) bool { return !c.IsAvailableCommand() })
		for _, c := range below {
			b.WriteString("\n")
			section(c, level+1)
		}
	}
	section(c, 1)
	return b.String()
}
