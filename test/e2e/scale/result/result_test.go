package result

import (
	"bytes"
	"flag"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the picture of docs/operate/scale.md anew, from testdata")

const (
	recorded = "testdata/run.jsonl.gz"
	picture  = "../../../../docs/pictures/scale.svg"
)

// The picture of the documentation is made from the raw data that are in the repository,
// and these say that nothing was lost or wrong.
func TestPicture(t *testing.T) {
	f, err := os.Open(recorded)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines, err := Read(f)
	if err != nil {
		t.Fatal(err)
	}
	s, err := Summarize(lines)
	if err != nil {
		t.Fatal(err)
	}
	if testing.Verbose() {
		if err := s.Print(os.Stdout); err != nil {
			t.Fatal(err)
		}
	}
	if checked, wrong, lost := s.Bad(); checked == 0 || wrong+lost > 0 {
		t.Errorf("%d objects were checked, %d wrong, %d lost", checked, wrong, lost)
	}
	svg := s.SVG()
	if *update {
		if err := os.WriteFile(picture, svg, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(picture); err != nil || !bytes.Equal(got, svg) {
		t.Errorf("%s is not made from %s (%v); go test ./test/e2e/scale/result -update makes it anew", picture, recorded, err)
	}
}

// made is a short run: two phases, a fault with one refused write and one without an answer,
// a replica that was started again, and what else there is.
func made(w *Writer) {
	w.Add(Line{Run: &Run{Nodes: 3, Pods: 4, Policies: 5, Replicas: 2}})
	w.Add(Line{T: 10, Phase: Without})
	w.Add(Line{T: 20, Phase: Faults})
	for i := range 20 {
		w.Add(Line{T: 10 + float64(i), Write: &Write{What: "Pod", MS: float64(i + 1), Code: 201}})
		pid, cpu := 7, float64(i)/2
		if i >= 15 {
			pid, cpu = 8, 100+float64(i)
		}
		w.Add(Line{T: 10 + float64(i), Use: &Use{Who: "mapd-1", PID: pid, CPU: cpu, MiB: 50 + float64(i)}})
	}
	w.Add(Line{T: 25, Write: &Write{What: "Pod", MS: 9000, Code: 500}})
	w.Add(Line{T: 26, Write: &Write{What: "Pod", MS: 1, Code: 0}})
	// A fault is written when it is over.
	w.Add(Line{T: 24, Fault: &Span{What: "a < b", Seconds: 3}})
	w.Add(Line{T: 27, Change: &Change{What: "one", Policies: 1, Written: .1, Acts: .3}})
	w.Add(Line{T: 28, Change: &Change{What: "one", Policies: 1, Written: .2, Acts: -1}})
	w.Add(Line{T: 28, Audit: &Audit{Seconds: 2, Objects: 11, Changed: 1}})
	w.Add(Line{T: 30, Check: &Check{What: "own", Objects: 20, Wrong: 1, Lost: 2}})
	w.Add(Line{T: 30, Phase: "end"})
}

func TestSummarize(t *testing.T) {
	var raw bytes.Buffer
	w := NewWriter(&raw)
	made(w)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	lines, err := Read(bytes.NewReader(raw.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	s, err := Summarize(lines)
	if err != nil {
		t.Fatal(err)
	}
	if checked, wrong, lost := s.Bad(); checked != 20 || wrong != 1 || lost != 2 {
		t.Errorf("%d checked, %d wrong, %d lost; want 20, 1, 2", checked, wrong, lost)
	}
	without, faults := s.Phases[0], s.Phases[1]
	if p := without.Writes["Pod"]; p.N != 10 || p.Refused+p.Unanswered != 0 || p.P50.Milliseconds() != 6 || p.P99.Milliseconds() != 10 {
		t.Errorf("without mapd: %+v", p)
	}
	if p := faults.Writes["Pod"]; p.N != 12 || p.Refused != 1 || p.Unanswered != 1 || p.P50.Milliseconds() != 16 {
		t.Errorf("with faults: %+v", p)
	}
	// Half a core until it was started again, then one.
	if u := without.Uses["mapd-1"]; u.Cores != .5 || u.MiB != 60 {
		t.Errorf("without mapd: %+v", u)
	}
	if u := faults.Uses["mapd-1"]; u.Cores != (4*.5+4)/8 || u.MiB != 69 {
		t.Errorf("with faults: %+v", u)
	}
	if f := s.Faults[0]; f.Refused != 1 || f.Unanswered != 1 || f.Last != 2 || f.Longest != 9 {
		t.Errorf("fault: %+v", f)
	}
	var text strings.Builder
	if err := s.Print(&text); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"| one | 2 | 0.20 s | 0.30, 0.30, 0.30 s; 1 not in time |", "| a < b | 24 s, 3.0 s | 1, 1 | 2.0 s | 9.0 s |", "own: 20 checked, 1 wrong, 2 lost", "11 objects, 1 would change"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("%q is not in\n%s", want, text.String())
		}
	}
	if svg := s.SVG(); !bytes.Contains(svg, []byte("1 a &lt; b")) || bytes.Contains(svg, []byte("NaN")) {
		t.Errorf("picture:\n%s", svg)
	}
}

// What was flushed is there although the program was killed.
func TestReadUnfinished(t *testing.T) {
	var raw bytes.Buffer
	w := NewWriter(&raw)
	made(w)
	w.Flush()
	w.Add(Line{T: 99, Note: "after it"})
	lines, err := Read(&raw)
	if err != nil {
		t.Fatal(err)
	}
	if s, err := Summarize(lines); err != nil || s.End != 30 {
		t.Errorf("%+v, %v", s, err)
	}
	if _, err := Summarize(nil); err == nil {
		t.Error("nothing was summarized")
	}
}
