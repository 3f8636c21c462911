package feature

import (
	"encoding/json"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/internal/output/page"
)

// Listing is the content of a ConfigMap in mapd's namespace that reports the state of objects
// whose status belongs to Gatekeeper or Kubewarden, which may be running, too.
type Listing struct {
	// Name is the name of the ConfigMap, and Key the key of its data with a line for each object.
	Name, Key string
	// About describes the objects in logs. One and Many are nouns for counting them.
	About, One, Many string
	// Mode is the mode in which the objects run; empty: the ConfigMap does not say.
	Mode string
	// States are all possible states, in the order of the summary.
	States []string
	// Action is the action of events about objects that do not do what they say.
	Action string
	Lines  []Line
	// Problems concern other objects, or more than one.
	Problems []string
}

// Line is one object and its state.
type Line struct {
	ID    string `json:"id"`
	State string `json:"state"`
	Text  string `json:"text,omitempty"` // the reason for the state, and further notes
	// Object is the object of events.
	Object *unstructured.Unstructured `json:"-"`
	// Reason is the reason of an event; empty: the object does what it says, and needs no event.
	Reason string `json:"-"`
}

// Keys of the ConfigMap besides Listing.Key.
const (
	KeyMode     = "mode"
	keySummary  = "summary"
	KeyProblems = "problems"
	KeyReport   = "report.json" // the other fields, for programs
)

const (
	// maxLine and maxList bound the text about one object and about all objects, in bytes: a
	// ConfigMap has room for about 1 MiB.
	maxLine = 300
	maxList = 700 << 10
)

// OneLine returns a text on one line, cut if it is long.
func OneLine(text string) string {
	text = page.OneLine(text)
	if len(text) <= maxLine {
		return text
	}
	return strings.ToValidUTF8(text[:maxLine], "") + " …"
}

// Data returns the data of the ConfigMap: a summary, a table with a line for each object, and
// everything as JSON for programs.
func (l *Listing) Data() map[string]string {
	out := map[string]string{keySummary: l.summary()}
	if l.Mode != "" {
		out[KeyMode] = l.Mode
	}
	var rows [][]string
	for cells := 0; len(rows) < len(l.Lines) && cells <= maxList; {
		o := &l.Lines[len(rows)]
		row := []string{o.ID, o.State, OneLine(o.Text)}
		rows, cells = append(rows, row), cells+len(row[0])+len(row[1])+len(row[2])
	}
	columns := page.Columns(rows)
	var lines, problems strings.Builder
	var shown []Line
	var said []string
	size := 0 // of table and JSON together
	for i, o := range l.Lines {
		if i == len(rows) || size > maxList {
			fmt.Fprintf(&lines, "and %d more\n", len(l.Lines)-i)
			break
		}
		o.Text = rows[i][2]
		text, _ := json.Marshal(o) // cannot fail for strings
		lines.WriteString(columns[i] + "\n")
		shown = append(shown, o)
		size += len(columns[i]) + len(text)
	}
	for i, p := range l.Problems {
		if size > maxList {
			fmt.Fprintf(&problems, "and %d more\n", len(l.Problems)-i)
			break
		}
		p = OneLine(p)
		problems.WriteString(p + "\n")
		said = append(said, p)
		size += 2 * len(p)
	}
	out[l.Key] = lines.String()
	report := map[string]any{}
	if l.Mode != "" {
		report[KeyMode] = l.Mode
	}
	if len(shown) > 0 {
		report[l.Key] = shown
	}
	if len(l.Problems) > 0 {
		out[KeyProblems] = problems.String()
	}
	if len(said) > 0 {
		report[KeyProblems] = said
	}
	text, _ := json.Marshal(report) // cannot fail for strings
	out[KeyReport] = string(text)
	return out
}

// summary returns a text such as "5 mutators: 3 running, 2 conflict".
func (l *Listing) summary() string {
	count := map[string]int{}
	for _, o := range l.Lines {
		count[o.State]++
	}
	text := fmt.Sprintf("%d %s", len(l.Lines), l.Many)
	if len(l.Lines) == 1 {
		text = "1 " + l.One
	}
	sign := ": "
	for _, state := range l.States {
		if count[state] > 0 {
			text += fmt.Sprintf("%s%d %s", sign, count[state], state)
			sign = ", "
		}
	}
	return text
}

// ReadListing returns the mode, the lines under key and the problems in the data of a ConfigMap.
// If a release without report.json has written it, only the mode is set.
func ReadListing(data map[string]string, key string) Listing {
	l := Listing{Key: key, Mode: data[KeyMode]}
	var parts map[string]json.RawMessage
	if json.Unmarshal([]byte(data[KeyReport]), &parts) == nil {
		_ = json.Unmarshal(parts[key], &l.Lines)
		_ = json.Unmarshal(parts[KeyProblems], &l.Problems)
	}
	return l
}
