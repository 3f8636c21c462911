// Package browser drives the playground in a real browser, Chromium without a window:
// what `mapd playground` serves, and the same folder on a plain static host. Answers
// are compared with those of the same code as a native program.
//
// `make browser` builds what this needs and runs it.
package browser

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

// patience bounds every wait. It is long by itself because the machine may be busy; nothing
// waits longer than it has to.
var patience = flag.Duration("patience", 2*time.Minute, "bound of a wait")

// Figures of two versions say something only if the same program takes them on the same machine.
var other = flag.String("program", "", "path of another mapd whose playground is driven")

var (
	root    = must(filepath.Abs("../.."))
	site    = filepath.Join(root, "internal/author/playground/site")
	program = filepath.Join(root, "bin/mapd")

	chromium context.Context // the browser that all tests share
	playside string          // the URL of `mapd playground`, with a / at its end
	foreign  string          // the URL of a plain static host, below a path
	reached  contacted       // what the browser wanted of other hosts
	native   string          // the program of web/ for this machine
)

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func TestMain(m *testing.M) {
	flag.Parse()
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "test/browser:", err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (int, error) {
	if *other != "" {
		program = *other
	}
	path, err := findChromium()
	if err != nil {
		return 0, err
	}
	for _, want := range []string{program, filepath.Join(site, "index.html"), filepath.Join(site, "mapd.wasm.gz")} {
		if _, err := os.Stat(want); err != nil {
			return 0, fmt.Errorf("%w; run make browser, which builds it", err)
		}
	}
	dir, err := os.MkdirTemp("", "mapd-browser-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)

	native = filepath.Join(dir, "native")
	build := exec.Command("go", "build", "-o", native, "./web")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		return 0, fmt.Errorf("building ./web: %w\n%s", err, out)
	}
	server, err := startPlayground()
	if err != nil {
		return 0, err
	}
	defer server.stop()
	playside = server.url
	// Nothing but a folder of files: no header of ours, and not at the top.
	static := httptest.NewServer(http.StripPrefix("/a/folder/", http.FileServer(http.Dir(site))))
	defer static.Close()
	foreign = static.URL + "/a/folder/"

	// Whatever the browser sends to another machine goes through this proxy.
	outside := httptest.NewServer(&reached)
	defer outside.Close()
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(path),
		chromedp.ProxyServer(outside.URL),
		chromedp.UserDataDir(filepath.Join(dir, "profile")),
		chromedp.WindowSize(1400, 900),
		// Timers and frames of a tab that is not the newest one must run too.
		chromedp.Flag("disable-features", "Translate,CalculateNativeWinOcclusion"),
		chromedp.DisableGPU,
	)
	if os.Getuid() == 0 {
		options = append(options, chromedp.NoSandbox) // it refuses to start otherwise
	}
	allocator, end := chromedp.NewExecAllocator(context.Background(), options...)
	defer end()
	ctx, end := chromedp.NewContext(allocator)
	defer end()
	if err := chromedp.Do(ctx); err != nil {
		return 0, fmt.Errorf("%s: %w", path, err)
	}
	chromium = ctx
	return m.Run(), nil
}

// findChromium returns the browser's program: MAPD_CHROMIUM, or the first of the names
// that distributions use.
func findChromium() (string, error) {
	if path := os.Getenv("MAPD_CHROMIUM"); path != "" {
		return exec.LookPath(path)
	}
	names := []string{"chromium", "chromium-browser", "google-chrome-stable", "google-chrome"}
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("no browser: none of %s is in PATH; install Debian's package chromium, or name the program with MAPD_CHROMIUM", strings.Join(names, ", "))
}

// contacted records the hosts that the browser asked for, as a proxy sees them, and
// answers none of them.
type contacted struct {
	mu    sync.Mutex
	hosts []string
}

func (c *contacted) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hosts = append(c.hosts, r.Host)
	http.Error(w, "no other host is reached from here", http.StatusBadGateway)
}

// by returns the recorded hosts that end with suffix.
func (c *contacted) by(suffix string) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []string
	for _, h := range c.hosts {
		host, _, err := net.SplitHostPort(h)
		if err != nil {
			host = h
		}
		if strings.HasSuffix(host, suffix) {
			out = append(out, h)
		}
	}
	return out
}

// A playground is a process of `mapd playground`.
type playground struct {
	cmd *exec.Cmd
	url string
}

func startPlayground() (*playground, error) {
	cmd := exec.Command(program, "playground", "--no-open", "--port", "0")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		for word := range strings.FieldsSeq(lines.Text()) {
			if strings.HasPrefix(word, "http://") {
				go io.Copy(io.Discard, out)
				return &playground{cmd, strings.TrimRight(word, "/.,") + "/"}, nil
			}
		}
	}
	cmd.Process.Kill()
	return nil, fmt.Errorf("mapd playground printed no URL: %w\n%s", errors.Join(lines.Err(), cmd.Wait()), &stderr)
}

func (p *playground) stop() {
	p.cmd.Process.Kill()
	p.cmd.Wait()
}

// asked returns what the engine says of a question, without a browser.
func asked(t *testing.T, q state) answer {
	t.Helper()
	return ask[answer](t, "evaluate", q)
}

// ask calls a method of web/call.go, without a browser.
func ask[A any](t *testing.T, method string, params any) A {
	t.Helper()
	cmd := exec.Command(native)
	cmd.Stdin = strings.NewReader(method + " " + string(must(json.Marshal(params))) + "\n")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v: %s", method, err, &stderr)
	}
	var a A
	if err := json.Unmarshal(out, &a); err != nil {
		t.Fatal(err)
	}
	return a
}
