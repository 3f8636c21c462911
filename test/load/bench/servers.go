package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/servingcert"
	"github.com/mapd-project/mapd/test/load"
)

// A subject is a server to measure: a floor, or mapd with policies of which some
// match.
type subject struct {
	name     string
	floor    string
	policies int
	matching int
	kind     load.Kind
	scale    *size // instead of policies, if not nil
}

func (s subject) objects() []*unstructured.Unstructured {
	if s.scale != nil {
		return s.scale.objects()
	}
	all := []*unstructured.Unstructured{{Object: map[string]any{
		"apiVersion": "v1", "kind": "Namespace",
		"metadata": map[string]any{"name": "default", "labels": map[string]any{"kubernetes.io/metadata.name": "default"}},
	}}}
	for i := range s.matching {
		all = append(all, load.Policy(api.OwnGroup, s.kind, i)...)
	}
	for i := s.matching; i < s.policies; i++ {
		all = append(all, load.OtherPolicy(api.OwnGroup, s.kind, i)...)
	}
	return all
}

// A server is a process that serves.
type server struct {
	subject
	url    string
	pid    int
	client map[int]*load.Client // by connections
	stop   func()
}

// certificate has the files of a certificate for localhost, which are deleted with their directory.
type certificate struct {
	cert, key string
	ca        []byte
}

func newCertificate(dir string) (*certificate, error) {
	made, ca, err := servingcert.SelfSigned([]string{"localhost", "127.0.0.1"})
	if err != nil {
		return nil, err
	}
	key, err := x509.MarshalPKCS8PrivateKey(made.PrivateKey)
	if err != nil {
		return nil, err
	}
	var chain bytes.Buffer
	for _, der := range made.Certificate {
		if err := pem.Encode(&chain, &pem.Block{Type: "CERTIFICATE", Bytes: der}); err != nil {
			return nil, err
		}
	}
	c := &certificate{cert: filepath.Join(dir, "tls.crt"), key: filepath.Join(dir, "tls.key"), ca: ca}
	if err := os.WriteFile(c.cert, chain.Bytes(), 0o600); err != nil {
		return nil, err
	}
	return c, os.WriteFile(c.key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}), 0o600)
}

// writePolicies writes objects into files of a directory, up to a thousand into each.
func writePolicies(dir string, objects []*unstructured.Unstructured) error {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	for n := 0; len(objects) > 0; n++ {
		var file bytes.Buffer
		some := objects[:min(1000, len(objects))]
		objects = objects[len(some):]
		for _, o := range some {
			data, err := json.Marshal(o)
			if err != nil {
				return err
			}
			fmt.Fprintf(&file, "---\n%s\n", data)
		}
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("policies-%d.yaml", n)), file.Bytes(), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// startTimeout is long enough to load 10,000 policies on a busy machine.
const startTimeout = 2 * time.Minute

// start starts a subject and waits until it is ready.
func start(ctx context.Context, f *flags, s subject, dir string, cert *certificate) (*server, error) {
	args := []string{"-floor", s.floor, "-tls-cert", cert.cert, "-tls-key", cert.key}
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	if s.floor == "" {
		policies := filepath.Join(dir, strings.ReplaceAll(strings.ReplaceAll(s.name, " ", "-"), ",", ""))
		if err := writePolicies(policies, s.objects()); err != nil {
			return nil, err
		}
		program = f.mapd
		args = []string{"serve", "--policies", policies, "--listen", "127.0.0.1:0", "--tls-cert", cert.cert, "--tls-key", cert.key, "--log-level", "warn"}
	}
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Stderr = os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 5 * time.Second // after that it is killed
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	v := &server{subject: s, pid: cmd.Process.Pid, client: map[int]*load.Client{}}
	v.stop = func() {
		for _, c := range v.client {
			c.Close()
		}
		_ = cmd.Cancel() // it may have ended
		_ = cmd.Wait()   // the exit status does not matter
	}
	lines := bufio.NewScanner(out)
	for v.url == "" && lines.Scan() {
		if _, at, ok := strings.Cut(lines.Text(), "listening on "); ok {
			v.url = at
		}
	}
	if v.url == "" {
		v.stop()
		return nil, fmt.Errorf("%s ended before it listened", filepath.Base(program))
	}
	if err := v.ready(ctx, cert.ca); err != nil {
		v.stop()
		return nil, err
	}
	for _, n := range connections {
		if v.client[n], err = load.NewClient(load.Target{URL: v.url, CA: cert.ca, Connections: n}); err != nil {
			v.stop()
			return nil, err
		}
	}
	return v, nil
}

// ready waits until /readyz answers that the server is ready.
func (v *server) ready(ctx context.Context, ca []byte) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, DisableKeepAlives: true}}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(v.url, "/mutate")+"/readyz", nil)
		if err != nil {
			return err
		}
		resp, err := client.Do(req)
		if err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
			err = fmt.Errorf("/readyz: %s", resp.Status)
		}
		select {
		case <-ctx.Done():
			return err
		case <-tick.C:
		}
	}
}
