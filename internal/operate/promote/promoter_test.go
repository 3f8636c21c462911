package promote

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
)

// answers has the answers of replicas.
type answers struct {
	running map[string]string
	counts  map[string]Counts
	exempt  []string
	err     error
}

func (a answers) Running(context.Context, string) (map[string]string, error) { return a.running, a.err }
func (a answers) Counts(context.Context, string) (map[string]Counts, error)  { return a.counts, a.err }
func (a answers) Exempt(context.Context) ([]string, error)                   { return a.exempt, a.err }

// A move waits for every replica, and says which one is missing and how to go on.
func TestReplicas(t *testing.T) {
	gone := errors.New("replica b: connection refused")
	for name, tt := range map[string]struct {
		answers answers
		want    string
	}{
		"all run it":    {answers{running: map[string]string{"a": "new", "b": "new"}}, ""},
		"one is old":    {answers{running: map[string]string{"a": "new", "b": "old"}}, "replica b does not run the policy as it is stored"},
		"one is gone":   {answers{err: gone}, "replicas of mapd: not within 1ns: replica b: connection refused"},
		"there is none": {answers{}, "none was found"},
	} {
		t.Run(name, func(t *testing.T) {
			p := &Promoter{Replicas: tt.answers, Patience: 1, Progress: t.Logf}
			if err := p.everyReplica(t.Context(), "p", "new"); (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, want %q", err, tt.want)
			}
		})
	}
	p := &Promoter{Replicas: answers{err: gone}, Patience: 1, CanaryRequests: 1, CanaryTime: time.Minute, Progress: t.Logf}
	_, _, err := (&canary{}).look(t.Context(), p, "p", "x")
	if err == nil {
		t.Fatal("a canary without a replica does not fail")
	}
	for to, commands := range map[Direction][2]string{Native: {"mapd promote p", "mapd promote --demote p"}, Mapd: {"mapd promote --demote p", "mapd promote p"}} {
		want := "p: the counts of mapd's replicas: not within 1ns: replica b: connection refused\nevery request is still mutated; go on with: " + commands[0] + "\nor back with: " + commands[1]
		if got := p.where("p", Options{To: to}, err).Error(); got != want {
			t.Errorf("it says\n%s\nwant\n%s", got, want)
		}
	}
	p.Window = true
	if got := p.where("p", Options{To: Mapd}, err).Error(); !strings.HasSuffix(got, "go on with: mapd promote --demote --allow-window p\nor back with: mapd promote --allow-window p") {
		t.Errorf("with a window it says\n%s", got)
	}
}
