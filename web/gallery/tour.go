package gallery

import (
	"fmt"
	"io/fs"
	"regexp"
	"strings"

	"sigs.k8s.io/yaml"
)

// TourPages are the pages of the tour, in their order.
var TourPages = []string{"docs/author/tour-nine.md", "docs/author/tour-nine-more.md"}

var (
	tourPart = regexp.MustCompile(`^## [1-9]\. (.+)$`)
	caseLink = regexp.MustCompile(`^\[([a-z-]+/[a-z0-9-]+)\]\(\.\./\.\./test/cases/`)
	mdLink   = regexp.MustCompile(`\[([^]]+)\]\([^)]+\)`)
)

// A Part is a section of the tour.
type Part struct {
	Title  string
	Words  []string
	Blocks []string // policies, the objects that they need, the request, the result
	Case   string
}

// Parts reads the sections of the tour: paragraphs, blocks, and a last line that begins
// with a link to the case that the blocks are from.
func Parts(root fs.FS) ([]Part, error) {
	var text strings.Builder
	for _, name := range TourPages {
		page, err := fs.ReadFile(root, name)
		if err != nil {
			return nil, err
		}
		text.Write(page)
	}
	var parts []Part
	var p *Part
	for _, b := range split(text.String()) {
		switch {
		case !b.fence && tourPart.MatchString(b.text):
			parts = append(parts, Part{Title: tourPart.FindStringSubmatch(b.text)[1]})
			p = &parts[len(parts)-1]
		case p == nil:
		case b.fence:
			p.Blocks = append(p.Blocks, b.text)
		case caseLink.MatchString(b.text):
			p.Case = caseLink.FindStringSubmatch(b.text)[1]
		case strings.HasPrefix(b.text, "#"):
			p = nil
		default:
			p.Words = append(p.Words, mdLink.ReplaceAllString(strings.ReplaceAll(b.text, "\n", " "), "$1"))
		}
	}
	return parts, nil
}

// tour makes entries of the parts.
func tour(root fs.FS) ([]Entry, error) {
	parts, err := Parts(root)
	if err != nil {
		return nil, err
	}
	var all []Entry
	for _, p := range parts {
		n := len(p.Blocks)
		if n < 3 || len(p.Words) == 0 || p.Case == "" {
			return nil, fmt.Errorf("the tour: %q has %d blocks, %d paragraphs and the case %q", p.Title, n, len(p.Words), p.Case)
		}
		file, err := fs.ReadFile(root, "test/cases/"+p.Case+".txtar")
		if err != nil {
			return nil, err
		}
		headline, _, _ := strings.Cut(string(file), "\n")
		_, sentence, _ := strings.Cut(headline, ": ")
		_, name, _ := strings.Cut(p.Case, "/")
		e := Entry{
			Name: "tour-" + name, Group: "Nine things you did not expect", Title: plain(p.Title),
			Sentence: plain(sentence), Words: p.Words, Case: p.Case,
		}
		for i, text := range p.Blocks[:n-2] {
			e.State.Documents = append(e.State.Documents, Text{Name: []string{"policies.yaml", "more.yaml"}[min(i, 1)], Text: text})
		}
		if err := request(&e.State, p.Blocks[n-2]); err != nil {
			return nil, fmt.Errorf("the tour: %q: %w", p.Title, err)
		}
		if result := p.Blocks[n-1]; strings.HasPrefix(result, "The ") {
			e.Refused = strings.TrimSpace(result)
		} else {
			e.Diff = result
		}
		all = append(all, e)
	}
	return all, nil
}

// request reads the request of a case (see test/cases/README.md). The texts of its objects, which
// are blocks of YAML, are kept unchanged.
func request(s *State, text string) error {
	var fields struct {
		Operation   string `json:"operation"`
		Subresource string `json:"subresource"`
	}
	if err := yaml.Unmarshal([]byte(text), &fields); err != nil {
		return err
	}
	s.Operation, s.Subresource = fields.Operation, fields.Subresource
	of := map[string]*strings.Builder{"object:": {}, "oldObject:": {}}
	var at *strings.Builder
	for line := range strings.Lines(text) {
		rest, below := strings.CutPrefix(line, "  ")
		switch {
		case !below:
			at = of[strings.TrimSpace(line)]
		case at != nil:
			at.WriteString(rest)
		}
	}
	if of["object:"].Len() == 0 {
		return fmt.Errorf("the request has no object")
	}
	s.Objects = []Text{{Name: "object.yaml", Text: of["object:"].String()}}
	if old := of["oldObject:"]; old.Len() > 0 {
		s.Old = []Text{{Name: "old.yaml", Text: old.String()}}
	}
	return nil
}

// A piece of a Markdown page is the content of a fence, or one paragraph, heading or table.
type piece struct {
	fence bool
	text  string
}

// split splits a page into pieces. It finds only fences at the start of a line.
func split(page string) []piece {
	var all []piece
	var b strings.Builder
	fence := false
	flush := func() {
		if b.Len() > 0 {
			all = append(all, piece{fence, b.String()})
		}
		b.Reset()
	}
	for line := range strings.Lines(page) {
		switch {
		case strings.HasPrefix(line, "```"):
			flush()
			fence = !fence
		case fence:
			b.WriteString(line)
		case strings.TrimSpace(line) == "":
			flush()
		default:
			if b.Len() > 0 {
				b.WriteString("\n")
			}
			b.WriteString(strings.TrimSuffix(line, "\n"))
		}
	}
	flush()
	return all
}
