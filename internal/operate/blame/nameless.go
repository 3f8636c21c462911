package blame

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

const (
	// maxNameless bounds the remembered creations of objects whose name is not in the log.
	maxNameless = 512
	// maxNamelessLines bounds the remembered lines of each creation.
	maxNamelessLines = 64
	// soon is the longest time assumed between the creation of an object and the first event with
	// its name, which is one of the scheduler or a controller, usually at once.
	soon = 10 * time.Second
)

// nameless has the last creations of objects whose name the server generated. The log has that
// name only in the response, which audit levels below RequestResponse leave out.
type nameless struct {
	last []creation
	next int // index in last of the next creation to replace, once last is full
}

// creation is such a creation of an object.
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

// Nameless returns the number of remembered creations without a name that settleNameless and
// flushNameless have not used.
func (l *Log) Nameless() int { return len(l.nameless.last) }

// mayBe reports whether the created object may be the target, which existed at the time named.
func (c *creation) mayBe(t *Target, named time.Time) bool {
	if c.prefix != "" && !strings.HasPrefix(t.Name, c.prefix) {
		return false
	}
	if !t.Created.IsZero() { // it has a precision of seconds
		return !c.time.After(t.Created.Add(time.Second)) && c.time.After(t.Created.Add(-soon))
	}
	return !c.time.After(named) && c.time.After(named.Add(-soon))
}

// settleNameless emits, when an event names the target for the first time, the lines of all
// remembered creations that may be the target's.
func (l *Log) settleNameless(e *auditEvent) error {
	if l.last != nil || l.Events > 1 {
		return nil // its creation is known, or was settled
	}
	return l.writeNameless(e.Received.Time)
}

// flushNameless does what settleNameless does for a target that no event names.
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
