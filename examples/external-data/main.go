// Command external-data is a provider of external data as Gatekeeper and mapd ask it:
// it answers image references with the digests of a local table.
//
//	external-data issue --dir certs --host localhost     # writes ca.crt, tls.crt and tls.key
//	external-data serve --table table.txt --certs certs  # prints the address when it listens
//
// With --fault it fails in a chosen way, to try what policies make of it.
package main

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/mapd-project/mapd/pkg/servingcert"
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("external-data: ")
	if len(os.Args) < 2 {
		log.Fatal("usage: external-data issue|serve FLAGS")
	}
	run := map[string]func([]string) error{"issue": issue, "serve": serve}[os.Args[1]]
	if run == nil {
		log.Fatalf("%q: must be issue or serve", os.Args[1])
	}
	if err := run(os.Args[2:]); err != nil {
		log.Fatal(err)
	}
}

// issue makes an authority and a certificate that it signs.
func issue(args []string) error {
	fl := flag.NewFlagSet("issue", flag.ExitOnError)
	dir := fl.String("dir", "certs", "directory for ca.crt, tls.crt and tls.key")
	host := fl.String("host", "localhost", "the name in the Provider's url")
	_ = fl.Parse(args) // it exits
	cert, ca, err := servingcert.SelfSigned([]string{*host})
	if err != nil {
		return err
	}
	key, err := x509.MarshalPKCS8PrivateKey(cert.PrivateKey)
	if err != nil {
		return err
	}
	var chain []byte
	for _, der := range cert.Certificate {
		chain = append(chain, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})...)
	}
	if err := os.MkdirAll(*dir, 0o755); err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(filepath.Join(*dir, "ca.crt"), ca, 0o644),
		os.WriteFile(filepath.Join(*dir, "tls.crt"), chain, 0o644),
		os.WriteFile(filepath.Join(*dir, "tls.key"), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}), 0o600),
	)
}

func serve(args []string) error {
	fl := flag.NewFlagSet("serve", flag.ExitOnError)
	listen := fl.String("listen", "127.0.0.1:0", "address; port 0 takes a free one")
	table := fl.String("table", "table.txt", "file with an image and its digest on each line")
	certs := fl.String("certs", "certs", "directory with tls.crt and tls.key")
	clientCA := fl.String("client-ca", "", "file with the authority that clients' certificates must come from; without it everybody may ask")
	fault := fl.String("fault", "", "how to fail: "+strings.Join(faults, ", "))
	_ = fl.Parse(args) // it exits
	digests, err := readTable(*table)
	if err != nil {
		return err
	}
	cert, err := tls.LoadX509KeyPair(filepath.Join(*certs, "tls.crt"), filepath.Join(*certs, "tls.key"))
	if err != nil {
		return err
	}
	config := &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{cert}}
	if *clientCA != "" {
		text, err := os.ReadFile(*clientCA)
		if err != nil {
			return err
		}
		config.ClientCAs, config.ClientAuth = x509.NewCertPool(), tls.RequireAndVerifyClientCert
		if !config.ClientCAs.AppendCertsFromPEM(text) {
			return fmt.Errorf("%s: no certificate", *clientCA)
		}
	}
	listener, err := net.Listen("tcp", *listen)
	if err != nil {
		return err
	}
	fmt.Printf("listening on https://%s/digests\n", listener.Addr())
	server := &http.Server{
		Handler: &provider{digests, *fault}, TLSConfig: config, ErrorLog: log.New(io.Discard, "", 0),
		ReadTimeout: 10 * time.Second, MaxHeaderBytes: 1 << 16,
	}
	return server.ServeTLS(listener, "", "")
}

func readTable(file string) (map[string]string, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	digests := map[string]string{}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if fields := strings.Fields(lines.Text()); len(fields) == 2 {
			digests[fields[0]] = fields[1]
		}
	}
	return digests, nil
}

type provider struct {
	digests map[string]string
	fault   string
}

type item struct {
	Key   string `json:"key"`
	Value string `json:"value,omitempty"`
	Error string `json:"error,omitempty"`
}

func (p *provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var asked struct {
		Request struct {
			Keys []string `json:"keys"`
		} `json:"request"`
	}
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<20)).Decode(&asked); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	answer := map[string]any{"idempotent": true, "items": p.items(asked.Request.Keys)}
	if p.fail(w, r, answer) {
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{
		"apiVersion": "externaldata.gatekeeper.sh/v1beta1", "kind": "ProviderResponse", "response": answer,
	})
}

// items answers each image with the image at its digest. One that has a digest is its
// own answer, so that asking again changes nothing.
func (p *provider) items(images []string) []item {
	items := []item{}
	for _, image := range images {
		if digest, ok := p.digests[image]; ok {
			items = append(items, item{Key: image, Value: withoutTag(image) + "@" + digest})
		} else if strings.Contains(image, "@") {
			items = append(items, item{Key: image, Value: image})
		} else {
			items = append(items, item{Key: image, Error: "no digest is known"})
		}
	}
	return items
}

// withoutTag cuts the tag off; a colon before the last slash is that of a port.
func withoutTag(image string) string {
	if colon := strings.LastIndex(image, ":"); colon > strings.LastIndex(image, "/") {
		return image[:colon]
	}
	return image
}

var faults = []string{"slow", "cut", "garbage", "huge", "status", "redirect", "system-error", "not-idempotent", "missing", "duplicate", "number"}

// fail spoils the answer, or gives another one and returns true.
func (p *provider) fail(w http.ResponseWriter, r *http.Request, answer map[string]any) bool {
	items, _ := answer["items"].([]item)
	switch p.fault {
	case "slow":
		<-r.Context().Done()
	case "cut":
		w.Header().Set("Content-Length", "1000")
		_, _ = io.WriteString(w, `{"response":`)
	case "garbage":
		_, _ = io.WriteString(w, "<html>")
	case "huge":
		text := strings.Repeat("x", 1<<16)
		for range 1 << 10 { // 64 MiB
			if _, err := io.WriteString(w, text); err != nil {
				break
			}
		}
	case "status":
		http.Error(w, "try again", http.StatusServiceUnavailable)
	case "redirect":
		http.Redirect(w, r, "https://localhost:1/", http.StatusTemporaryRedirect)
	case "system-error":
		answer["systemError"] = "the table is away"
		return false
	case "not-idempotent":
		answer["idempotent"] = false
		return false
	case "missing":
		answer["items"] = []item{}
		return false
	case "duplicate":
		answer["items"] = append(items, items...)
		return false
	case "number":
		var numbers []any
		for _, i := range items {
			numbers = append(numbers, map[string]any{"key": i.Key, "value": 7})
		}
		answer["items"] = numbers
		return false
	default:
		return false
	}
	return true
}
