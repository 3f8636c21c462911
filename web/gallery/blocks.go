package gallery

import (
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strings"
)

var (
	evalCommand = regexp.MustCompile(`^\$ (?:bin/)?mapd eval ((?:-[pf] \S+ ?)+)(?:-o \S+|--blame|--trace| )*\n`)
	policyKind  = regexp.MustCompile(`(?m)^kind: (MutatingAdmissionPolicy|Assign|AssignImage|AssignMetadata|ModifySet)$`)
)

// A Block says what to open in the playground: an entry of the gallery or a state.
type Block struct {
	Example string `json:"example,omitempty"`
	State   *State `json:"state,omitempty"`
}

// pages returns the names of the Markdown files of the documentation.
func pages(root fs.FS) ([]string, error) {
	all := []string{"README.md", "examples/README.md"}
	err := fs.WalkDir(root, "docs", func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && strings.HasSuffix(name, ".md") {
			all = append(all, name)
		}
		return err
	})
	return all, err
}

// Blocks returns, for each block of the documentation that can be opened in the playground, what
// to open. These are blocks with policies, which are opened with the objects of the next block;
// blocks with a command that evaluates files of the repository; and the policies of the tour.
func Blocks(root fs.FS) (map[string]Block, error) {
	all := map[string]Block{}
	parts, err := tour(root)
	if err != nil {
		return nil, err
	}
	for _, p := range parts {
		all[p.State.Documents[0].Text] = Block{Example: p.Name}
	}
	names, err := pages(root)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		page, err := fs.ReadFile(root, name)
		if err != nil {
			return nil, err
		}
		if slices.Contains(TourPages, name) {
			continue
		}
		if err := blocks(root, string(page), all); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return all, nil
}

func blocks(root fs.FS, page string, all map[string]Block) error {
	var fences []string
	for _, p := range split(page) {
		if p.fence {
			fences = append(fences, p.text)
		}
	}
	for i, text := range fences {
		if m := evalCommand.FindStringSubmatch(text); m != nil {
			s, err := evaluated(root, m[1])
			if err != nil {
				return err
			}
			if len(s.Documents) > 0 && len(s.Objects) > 0 {
				all[text] = Block{State: &s}
			}
			continue
		}
		policies := output(text)
		docs, err := documents(policies)
		if err != nil || !policyKind.MatchString(policies) || len(docs) == 0 || docs[0].APIVersion == "" {
			continue // a part of a policy, or something else
		}
		s := State{Documents: []Text{{Name: "policy.yaml", Text: policies}}, Objects: []Text{}}
		s.Unbound = !strings.Contains(policies, "\nkind: MutatingAdmissionPolicyBinding\n") && strings.Contains(policies, "\nkind: MutatingAdmissionPolicy\n")
		if i+1 < len(fences) && isObject(fences[i+1]) {
			s.Objects = append(s.Objects, Text{Name: "object.yaml", Text: fences[i+1]})
		}
		all[text] = Block{State: &s}
	}
	return nil
}

// output returns the output of the first command in a block of a console, or the whole text.
func output(text string) string {
	if !strings.HasPrefix(text, "$ ") {
		return text
	}
	_, text, _ = strings.Cut(text, "\n")
	text, _, _ = strings.Cut(text, "\n$ ")
	return text
}

func isObject(text string) bool {
	docs, err := documents(text)
	return err == nil && len(docs) > 0 && docs[0].APIVersion != "" && !strings.Contains(docs[0].APIVersion, "mapd.dev/") &&
		!strings.HasPrefix(docs[0].APIVersion, "admissionregistration.k8s.io/")
}

// evaluated reads the files that the arguments of a command name: -p FILE … -f FILE. It returns a
// state without texts if one of them is not in the repository.
func evaluated(root fs.FS, args string) (State, error) {
	s := State{Documents: []Text{}, Objects: []Text{}}
	fields := strings.Fields(args)
	for i := 0; i+1 < len(fields); i += 2 {
		names := []string{fields[i+1]}
		if info, err := fs.Stat(root, fields[i+1]); err != nil {
			return State{}, nil
		} else if info.IsDir() {
			if names, err = fs.Glob(root, fields[i+1]+"/*.yaml"); err != nil {
				return s, err
			}
		}
		for _, name := range names {
			data, err := fs.ReadFile(root, name)
			if err != nil {
				return s, err
			}
			t := Text{Name: name[strings.LastIndex(name, "/")+1:], Text: string(data)}
			to := &s.Documents
			if fields[i] == "-f" {
				to = &s.Objects
			}
			if slices.ContainsFunc(*to, func(o Text) bool { return o.Name == t.Name }) {
				t.Name = name
			}
			*to = append(*to, t)
		}
	}
	return s, nil
}
