package blame

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

const created = `{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"Metadata","stage":"ResponseComplete","verb":"create","user":{"username":"alice"},` +
	`"objectRef":{"resource":"pods","namespace":"default","name":"web"},"responseStatus":{"code":201},"requestReceivedTimestamp":"2026-11-23T08:00:00Z",` +
	`"annotations":{"fail.never.mapd.dev/mutated-by":"a/b: /metadata/labels/x"}}`

func pod() *Target { return Offline("pod", "default", "web") }

// read returns the lines for a log.
func read(t *testing.T, r io.Reader) (*Log, []Line) {
	t.Helper()
	var lines []Line
	l := NewLog(pod(), func(line Line) error {
		lines = append(lines, line)
		return nil
	})
	if err := errors.Join(l.ReadFile("audit.log", r), l.End()); err != nil {
		t.Fatal(err)
	}
	return l, lines
}

// A line beyond the bound is skipped, whatever is in it, and those around it are read.
func TestLogLongLine(t *testing.T) {
	long := io.MultiReader(strings.NewReader(created+"\n"), &endless{left: maxLine + 100}, strings.NewReader("\n"+created))
	l, lines := read(t, long)
	if l.Read != 3 || l.Bad != 1 || len(lines) != 4 || l.Complaints[0] != "audit.log:2: longer than 16 MiB" {
		t.Errorf("%d read, %d bad, %d lines, %q", l.Read, l.Bad, len(lines), l.Complaints)
	}
}

// endless is a line of so many bytes.
type endless struct{ left int }

func (e *endless) Read(b []byte) (int, error) {
	if e.left == 0 {
		return 0, io.EOF
	}
	n := min(len(b), e.left)
	e.left -= n
	for i := range b[:n] {
		b[i] = 'x'
	}
	return n, nil
}

// What is remembered of a log is bounded: creations without a name, bad lines, and the
// lines that one event makes.
func TestLogIsBounded(t *testing.T) {
	var b bytes.Buffer
	for i := range 3 * maxNameless {
		fmt.Fprintf(&b, `{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"Request","stage":"ResponseComplete","verb":"create",`+
			`"objectRef":{"resource":"pods","namespace":"default"},"requestReceivedTimestamp":"2026-11-23T08:00:00Z","annotations":{%s}}`+"\n",
			`"w/mutated-by":"a/b: `+strings.Repeat("/x, ", 200)+`/y"`)
		fmt.Fprintf(&b, "bad %d\n", i)
	}
	fmt.Fprintf(&b, `{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"Request","stage":"ResponseComplete","verb":"patch","objectRef":{"resource":"pods","namespace":"default","name":"web"},`+
		`"requestReceivedTimestamp":"2026-11-23T09:00:00Z","requestObject":[{"op":"remove","path":"/0"}`)
	for i := range 5 * maxFields {
		fmt.Fprintf(&b, `,{"op":"remove","path":"/%d"}`, i)
	}
	b.WriteString("]}\n")
	l, lines := read(t, &b)
	if len(l.nameless.last) != 0 || l.Bad != 3*maxNameless || len(l.Complaints) != maxNamed {
		t.Errorf("%d creations, %d bad lines, %d complaints", len(l.nameless.last), l.Bad, len(l.Complaints))
	}
	if last := lines[len(lines)-1]; len(lines) != maxFields/2+1 || last.Note != fmt.Sprintf("%d fields more", 5*maxFields-maxFields/2) {
		t.Errorf("%d lines, the last %+v", len(lines), last)
	}
	hooked := eventLines{}
	hooked.webhooks(&auditEvent{Annotations: map[string]string{"w/mutated-by": "a/b: " + strings.Repeat("/x, ", 2*maxFields) + "/y"}})
	if last := hooked.lines[len(hooked.lines)-1]; len(hooked.lines) != maxFields+1 || last.Note != fmt.Sprintf("and %d fields more", maxFields+1) {
		t.Errorf("%d lines, the last %+v", len(hooked.lines), last)
	}
}

// A creation without a name counts if it was just before the object's, and not otherwise.
func TestLogNameless(t *testing.T) {
	at := func(second int, name string) string {
		text := strings.ReplaceAll(created, "08:00:00Z", fmt.Sprintf("08:00:%02dZ", second))
		if name != "web" {
			text = strings.ReplaceAll(text, `,"name":"web"`, "")
		}
		return text + "\n"
	}
	binding := strings.NewReplacer(`"name":"web"`, `"name":"web","subresource":"binding"`, "08:00:00Z", "08:00:30Z").Replace(created) + "\n"
	for name, c := range map[string]struct {
		log  string
		want int
	}{
		"just before":    {at(25, "") + binding, 4},
		"long before":    {at(5, "") + binding, 2},
		"after":          {at(40, "") + binding, 2},
		"named, as well": {at(25, "") + at(26, "web") + binding, 4},
		"nothing names":  {at(25, ""), 0},
	} {
		t.Run(name, func(t *testing.T) {
			_, lines := read(t, strings.NewReader(c.log))
			if len(lines) != c.want {
				t.Errorf("%d lines, want %d: %+v", len(lines), c.want, lines)
			}
		})
	}
	l := NewLog(pod(), func(Line) error { return errors.New("full") })
	l.target.Created = l.target.Created.AddDate(2025, 10, 22).Add(8 * 3600e9)
	if err := l.ReadFile("x", strings.NewReader(at(0, ""))); err != nil {
		t.Fatal(err)
	}
	if err := l.End(); err == nil {
		t.Error("the time of its creation is known, and nothing is said")
	}
}

func TestOffline(t *testing.T) {
	apps := schema.GroupResource{Group: "apps", Resource: "deployments"}
	for word, want := range map[string]schema.GroupResource{
		"deploy": apps, "Deployment": apps, "deployments": apps, "deployment.apps": apps, "deployments.v1.apps": apps,
		"po": {Resource: "pods"}, "svc": {Resource: "services"}, "ns": {Resource: "namespaces"},
	} {
		if got := Offline(word, "shop", "x"); len(got.Resources) != 1 || got.Resources[0] != want || got.AnyGroup {
			t.Errorf("%s: %+v", word, got)
		}
	}
	for word, plural := range map[string]string{"widget": "widgets", "proxy.example.com": "proxies", "mesh": "meshes", "gateways": "gateways"} {
		got := Offline(word, "shop", "x")
		_, group, _ := strings.Cut(word, ".")
		if !got.isResource(group, plural) || got.isResource("other.example.com", plural) == strings.Contains(word, ".") {
			t.Errorf("%s: %+v", word, got)
		}
	}
	for word, plural := range shortNames {
		if got := Offline(word, "", "x"); got.AnyGroup || got.Resources[0].Resource != plural {
			t.Errorf("%s: %+v", word, got)
		}
	}
	if ns := Offline("node", "shop", "x"); ns.Namespace != "" {
		t.Errorf("a Node is in the namespace %s", ns.Namespace)
	}
}

// FuzzLog reads any log. No line may stop it, be quoted, or make a line of the answer
// that is not about the object.
func FuzzLog(f *testing.F) {
	f.Add([]byte(created))
	f.Add([]byte(created + "\n{\n\n" + strings.Replace(created, `"annotations":{`, `"requestObject":{"generateName":"w"},"responseObject":{"metadata":{"name":"web","uid":"1"}},"annotations":{"patch.webhook.admission.k8s.io/x":"{\"patch\":[{}]}",`, 1)))
	f.Add([]byte(`{"kind":"EventList","apiVersion":"audit.k8s.io/v1","items":[` + created + `,{"user":1},` + strings.Replace(created, "create", "update", 1) + `]}`))
	f.Add([]byte("{}\n{\"apiVersion\":\"audit.k8s.io/v1\",\"create\":1,\"web\":\"pods\"}\n[]"))
	f.Fuzz(func(t *testing.T, data []byte) {
		l, lines := read(t, bytes.NewReader(data))
		if l.Bad > l.Read || l.Read > bytes.Count(data, []byte("\n"))+1 || len(l.Complaints) > maxNamed {
			t.Errorf("%d read, %d bad, %q", l.Read, l.Bad, l.Complaints)
		}
		for _, line := range lines {
			if line.Object != "pod/web" || line.Source != FromLog || line.By == "" && line.Note == "" && line.Kind != ByUser {
				t.Errorf("%+v", line)
			}
		}
		var zipped bytes.Buffer
		w := gzip.NewWriter(&zipped)
		_, _ = w.Write(data)
		_ = w.Close()
		again := NewLog(pod(), func(Line) error { return nil })
		if err := again.ReadFile("x.gz", &zipped); err != nil || again.Read != l.Read || again.Bad != l.Bad {
			t.Errorf("compressed: %v, %d read, %d bad; want %d and %d", err, again.Read, again.Bad, l.Read, l.Bad)
		}
		_ = again.ReadFile("x.gz", bytes.NewReader(data))
	})
}
