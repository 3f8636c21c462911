//go:build !server

package main

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/internal/author/playground"
	"github.com/mapd-project/mapd/internal/document/manifest"
	"github.com/mapd-project/mapd/internal/output/report"
	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/legacy"
	"github.com/mapd-project/mapd/pkg/mapd"
)

// site has the files of the playground; it is a variable for tests.
var site = playground.Site

type playgroundFlags struct {
	address   string
	port      int
	noOpen    bool
	recursive bool
}

const playgroundLong = `Serve the playground, a page with mapd in it, to browsers on this machine, and open
it. You write policies and objects there and see at each keystroke what a server would
store and why. mapd runs in the browser: nothing that you write is sent to this
command or anywhere else, and the command serves the files of the page and nothing else.

FILEs (or directories, or - for standard input) are what the page begins with: policies and
what belongs to them as documents, others as objects. They are in the printed URL, as in
every link that the page makes for sharing.

Without --port the port is 6273, or a free one if that is in use. With --address the page
is for everybody who can reach that address; other names than localhost work then, too.

Exit codes:
  0  it was ended by a signal
  2  wrong usage, a FILE that cannot be read or is too large, an address that cannot be
     listened on, or a mapd that was built without the playground`

func newPlayground(s streams) *cobra.Command {
	var f playgroundFlags
	cmd := &cobra.Command{
		Use:   "playground [FILE...]",
		Short: "Try policies in a browser",
		Long:  playgroundLong,
		Example: `  mapd playground
  mapd playground policy.yaml pod.yaml
  mapd playground --no-open --port 8000`,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, syscall.SIGINT)
			defer stop()
			context.AfterFunc(ctx, stop) // the second signal is not caught
			return f.run(ctx, s, args, cmd.Flags().Changed("port"))
		},
	}
	fl := cmd.Flags()
	fl.SortFlags = false
	recursiveVar(fl, &f.recursive)
	fl.BoolVar(&f.noOpen, "no-open", false, "do not open a browser")
	fl.IntVar(&f.port, "port", playground.Port, "port to listen on; 0 takes a free one")
	fl.StringVar(&f.address, "address", "", "IP address to listen on; others than loopback let other machines read the page (default 127.0.0.1 and ::1)")
	return cmd
}

func (f *playgroundFlags) run(ctx context.Context, s streams, paths []string, fixed bool) error {
	files := site()
	if files == nil {
		return usagef("this mapd was built without the playground: run make web build")
	}
	hosts, err := f.hosts()
	if err != nil {
		return err
	}
	fragment, err := f.fragment(s, paths)
	if err != nil {
		return &codedError{exitUsage, err}
	}
	listeners, err := f.listen(s, fixed)
	if err != nil {
		return usagef("playground: %w", err)
	}
	return f.serve(ctx, s, files, hosts, fragment, listeners)
}

func (f *playgroundFlags) serve(ctx context.Context, s streams, files fs.FS, hosts []string, fragment string, listeners []net.Listener) error {
	handler, err := playground.NewHandler(files, hosts...)
	if err != nil {
		return usagef("playground: %w", err)
	}
	url := pageURL(listeners[0].Addr()) + fragment
	if len(hosts) == 0 {
		fmt.Fprintf(s.err, "note: everybody who can reach %s can read the page\n", listeners[0].Addr())
	}
	if _, err := fmt.Fprintf(s.out, "mapd playground: listening on %s\n", url); err != nil {
		return &codedError{exitUsage, err}
	}
	if !f.noOpen {
		go func() {
			if err := openBrowser(url); err != nil && ctx.Err() == nil {
				fmt.Fprintf(s.err, "note: no browser was opened: %s; open the URL in one\n", report.Line(err.Error()))
			}
		}()
	}
	if err := playground.Serve(ctx, handler, listeners...); err != nil {
		return usagef("playground: %w", err)
	}
	return nil
}

// hosts returns the host names that requests may have; any if the page is served to other
// machines.
func (f *playgroundFlags) hosts() ([]string, error) {
	hosts := []string{"localhost", "127.0.0.1", "::1"}
	if f.address == "" {
		return hosts, nil
	}
	addr, err := netip.ParseAddr(f.address)
	switch {
	case err != nil:
		return nil, usagef("playground: --address %q: must be an IP address", f.address)
	case addr.IsLoopback():
		return append(hosts, f.address), nil
	}
	return nil, nil
}

// listen listens on the address in the flags. If another process uses the default port, it
// takes a free one, unless fixed is set.
func (f *playgroundFlags) listen(s streams, fixed bool) ([]net.Listener, error) {
	listeners, err := playground.Listen(f.address, f.port)
	if err == nil || fixed {
		return listeners, err
	}
	listeners, again := playground.Listen(f.address, 0)
	if again != nil {
		return nil, err
	}
	fmt.Fprintf(s.err, "note: port %d is in use\n", f.port)
	return listeners, nil
}

// pageURL returns the URL of the page for a browser on this machine.
func pageURL(addr net.Addr) string {
	tcp, ok := addr.(*net.TCPAddr)
	if !ok {
		return "http://" + addr.String() + "/"
	}
	host := tcp.IP.String()
	switch {
	case tcp.IP.IsUnspecified() && tcp.IP.To4() == nil:
		host = "::1"
	case tcp.IP.IsUnspecified():
		host = "127.0.0.1"
	}
	return "http://" + net.JoinHostPort(host, strconv.Itoa(tcp.Port)) + "/"
}

// fragment returns the fragment of a URL with which the page shows the files in paths.
func (f *playgroundFlags) fragment(s streams, paths []string) (string, error) {
	if len(paths) == 0 {
		return "", nil
	}
	hintKeyboard(s, paths...)
	names, _, err := manifest.Files(paths, f.recursive)
	if err != nil {
		return "", err
	}
	var files []mapd.File
	left := playground.MaxState
	for _, in := range manifest.Inputs(once(names), s.in) {
		file, err := readSome(in, left+1) // standard input may have no end
		if err != nil {
			return "", err
		}
		if left -= len(file.Data); left < 0 {
			return "", fmt.Errorf("the files have more than %d bytes, which do not fit in a link", playground.MaxState)
		}
		files = append(files, file)
	}
	fragment, err := playground.Fragment(stateOf(files))
	if err != nil {
		return "", err
	}
	return "#" + fragment, nil
}

// stateOf sorts the contents of files as the page does with files that are dropped on it
// (web/app/src/files.ts): policies and their context become documents, all else objects. A file
// with both becomes two.
func stateOf(files []mapd.File) playground.State {
	docs, params := make([][]*mapd.Document, len(files)), map[[2]string]bool{}
	for i, file := range files {
		for d, err := range mapd.Read(file.Name, bytes.NewReader(file.Data)) {
			if err != nil {
				docs[i] = nil // keep the file as a whole; the page shows its errors
				break
			}
			if d.Object() == nil {
				continue
			}
			docs[i] = append(docs[i], d)
			if kind, _, _ := unstructured.NestedString(d.Object().Object, "spec", "paramKind", "kind"); kind != "" {
				version, _, _ := unstructured.NestedString(d.Object().Object, "spec", "paramKind", "apiVersion")
				params[[2]string{version, kind}] = true
			}
		}
	}
	state := playground.State{Documents: []playground.Text{}, Objects: []playground.Text{}}
	for i, file := range files {
		var documents, objects []string
		for _, d := range docs[i] {
			text := strings.TrimRight(string(d.Text()), "\r\n") + "\n"
			if isDocument(d, params) {
				documents = append(documents, text)
			} else {
				objects = append(objects, text)
			}
		}
		name := filepath.Base(file.Name)
		if file.Name == "<stdin>" {
			name = "stdin.yaml"
		}
		whole := playground.Text{Name: name, Text: string(file.Data)}
		switch {
		case len(objects) == 0:
			state.Documents = append(state.Documents, whole)
		case len(documents) == 0:
			state.Objects = append(state.Objects, whole)
		default:
			state.Documents = append(state.Documents, playground.Text{Name: name, Text: strings.Join(documents, "---\n")})
			state.Objects = append(state.Objects, playground.Text{Name: name, Text: strings.Join(objects, "---\n")})
		}
	}
	return state
}

func isDocument(d *mapd.Document, params map[[2]string]bool) bool {
	u := d.Object()
	gvk := u.GroupVersionKind()
	return d.IsContext() || gvk.Group == api.RBACGroup || legacy.IsProvider(gvk) || params[[2]string{u.GetAPIVersion(), u.GetKind()}]
}

// openBrowser has the system open a URL. It may return only when the browser ends.
func openBrowser(url string) error {
	name, args := "xdg-open", []string{url}
	switch runtime.GOOS {
	case "darwin":
		name = "open"
	case "windows":
		name, args = "rundll32", []string{"url.dll,FileProtocolHandler", url}
	}
	return exec.Command(name, args...).Run()
}
