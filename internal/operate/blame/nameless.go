package blame

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

const (
	// maxNameless bounds how many creations of objects whose name the log does not have
	// are remembered.
	maxNameless = 512
	// maxNamelessLines bounds what is remembered of each.
	maxNamelessLines = 64
	// soon is how long after its creation somebody names an object at the latest: the
	// scheduler or a controller, usually at once.
	soon = 10 * time.Second
)

// nameless remembers the last creations of objects to which the server gave a name. The
// log has that name only in the response, which levels below RequestResponse leave out.
type nameless struct {
	last []creation
	next int // in last, once that is full
}

// creation is what one of them said.
type creation struct {
	prefix string // generateName, if the log has the request
	time   time.Time
	lines  []Line
}

func (n *nameless) add(e *auditEvent, lines []Line) {
	if e.ResponseStatus.Code >= 300 || e.ObjectRef.Subresource != "" {
		return
	}
	c := creation{time: e.Received.Time, lines: lines[:min(len(lines), maxNamelessLines)]}
	var request struct {
		Metadata struct {
			GenerateName string `json:"generateName"`
		} `json:"metadata"`
	}
	if json.Unmarshal(e.RequestObject, &request) == nil {
		c.prefix = request.Metadata.GenerateName
	}
	if len(n.last) < maxNameless {
		n.last = append(n.last, c)
		return
	}
	n.last[n.next] = c
	n.next = (n.next + 1) % maxNameless
}

func (n *nameless) clear() { *n = nameless{} }

// Nameless returns how many creations are known that the log does not name and that were
// not settled.
func (l *Log) Nameless() int { return len(l.nameless.last) }

// mayBe reports whether the target may be what was created.
func (c *creation) mayBe(t *Target, named time.Time) bool {
	if c.prefix != "" && !strings.HasPrefix(t.Name, c.prefix) {
		return false
	}
	if !t.Created.IsZero() { // to the second
		return !c.time.After(t.Created.Add(time.Second)) && c.time.After(t.Created.Add(-soon))
	}
	return !c.time.After(named) && c.time.After(named.Add(-soon))
}

// settleNameless writes what the creations say that may be that of the target, when an
// event names the target for the first time.
func (l *Log) settleNameless(e *auditEvent) error {
	if l.last != nil || l.Events > 1 {
		return nil // its creation is known, or was settled
	}
	return l.writeNameless(e.Received.Time)
}

// flushNameless is settleNameless for a target that no event names.
func (l *Log) flushNameless() error {
	if l.Events > 0 || l.target.Created.IsZero() {
		return nil
	}
	return l.writeNameless(l.target.Created)
}

func (l *Log) writeNameless(named time.Time) error {
	type claim struct{ field, by, note string }
	var order []claim
	found, count := map[claim]Line{}, map[claim]int{}
	all := 0
	for i := range l.nameless.last {
		c := &l.nameless.last[i]
		if !c.mayBe(l.target, named) {
			continue
		}
		all++
		for _, line := range c.lines {
			key := claim{line.Field, line.By, line.Note}
			if count[key]++; count[key] == 1 {
				order = append(order, key)
				found[key] = line
			}
		}
	}
	l.nameless.clear()
	for _, key := range order {
		line := found[key]
		note := "the log does not name what this request created"
		if all > 1 {
			note = fmt.Sprintf("so say %d of %d requests at this time, of which one created the object", count[key], all)
		}
		if line.Note != "" {
			note = line.Note + "; " + note
		}
		line.Note = note
		l.Events++
		if err := l.emit(line); err != nil {
			return err
		}
	}
	return nil
}
