package mapd_test

import (
	"go/scanner"
	"go/token"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// riddles are phrases that leave a reader guessing who does what: a verb of
// saying without a speaker, "has not" for "lacks", a poetic word for the field's
// own.
var riddles = regexp.MustCompile(`\btold\b|\bwhom\b|\bhas not(?:[.,;:)]| (?:the|a|an|any|got)\b)|\bcomes to\b|\bcome to[?.,;]|\bnone of ours\b|\bgives up\b|\bfares\b`)

var quotation = regexp.MustCompile("`[^`]*`|\"[^\"]*\"|“[^”]*”")

// Comments and documents are plain: see CONTRIBUTING.md. Text in quotation marks
// or backticks is somebody else's, and exempt.
func TestWords(t *testing.T) {
	if n := len(riddles.FindAllString("nobody is told, of whom it has not, and fares", -1)); n != 4 {
		t.Fatalf("found %d of 4 phrases", n)
	}
	read := 0
	for file, text := range texts(t) {
		switch {
		case file == "words_test.go":
			continue
		case filepath.Ext(file) == ".go":
			text = comments(file, text)
		case filepath.Ext(file) == ".md", filepath.Ext(file) == ".sh", filepath.Base(file) == "Makefile":
		default:
			continue
		}
		read++
		for n, line := range strings.Split(text, "\n") {
			if m := riddles.FindString(quotation.ReplaceAllString(line, "")); m != "" {
				t.Errorf("%s:%d: %q: say it plainly: %s", file, n+1, m, strings.TrimSpace(line))
			}
		}
	}
	if read < 500 {
		t.Errorf("read %d files: they are not found", read)
	}
}

// comments returns the comments of a Go file, each on the line where it stands.
func comments(file, text string) string {
	var s scanner.Scanner
	files := token.NewFileSet()
	f := files.AddFile(file, -1, len(text))
	s.Init(f, []byte(text), nil, scanner.ScanComments)
	lines := make([]string, strings.Count(text, "\n")+2)
	for {
		pos, tok, lit := s.Scan()
		if tok == token.EOF {
			return strings.Join(lines, "\n")
		}
		if tok == token.COMMENT {
			at := f.Line(pos) - 1
			for i, line := range strings.Split(lit, "\n") {
				lines[at+i] += line
			}
		}
	}
}
