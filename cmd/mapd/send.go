//go:build !server

package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kjson "sigs.k8s.io/json"

	"github.com/mapd-project/mapd/internal/document/manifest"
	"github.com/mapd-project/mapd/internal/httpsclient"
	"github.com/mapd-project/mapd/internal/output/report"
	"github.com/mapd-project/mapd/pkg/engine"
	"github.com/mapd-project/mapd/pkg/mapd"
	"github.com/mapd-project/mapd/pkg/policy"
	"github.com/mapd-project/mapd/pkg/tree"
	"github.com/mapd-project/mapd/pkg/webhook"
)

type sendFlags struct {
	eval   evalFlags
	server string
	caFile string
}

const sendLong = `Send objects to a mutating webhook, as an API server does, and print the answers.

Each object is sent as the AdmissionReview of its creation; an AdmissionReview
is sent as it is.

Exit codes:
  0  done
  1  an object was denied
  2  wrong usage, or a file that cannot be read
  5  some inputs failed, or the server could not be reached`

// newSend returns the command that sends requests to serve, so that a webhook can be tried
// without a cluster.
func newSend(s streams) *cobra.Command {
	var f sendFlags
	cmd := &cobra.Command{
		Use:     "send -f PATH... --server URL",
		Short:   "Send objects to a mutating webhook and print the answers",
		Long:    sendLong,
		Example: "  mapd send -f pod.yaml --server https://127.0.0.1:8443/mutate --ca-file ca.crt",
		Args:    noArguments("-f"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx := cmd.Context()
			return send(ctx, s, &f)
		},
	}
	fl := cmd.Flags()
	fl.SortFlags = false
	fl.StringArrayVarP(&f.eval.files, "filename", "f", nil, "objects or AdmissionReviews: file, directory or - ; repeatable")
	recursiveVar(fl, &f.eval.recursive)
	fl.StringVar(&f.server, "server", "", "the webhook's URL")
	fl.StringVar(&f.caFile, "ca-file", "", "file with the CA bundle of the server (default the system's)")
	choiceVarP(fl, &f.eval.output, "output", "o", "diff", "", "diff", "yaml", "json", "patch", "review", "name")
	fl.StringVarP(&f.eval.namespace, "namespace", "n", "", "the namespace of namespaced objects that name none (default \"default\"); objects that name another one are refused")
	return cmd
}

func send(ctx context.Context, s streams, f *sendFlags) error {
	switch {
	case len(f.eval.files) == 0:
		return usagef("send: no objects; give them with -f")
	case f.server == "":
		return usagef("send: no server; give its https:// URL with --server")
	case !strings.HasPrefix(f.server, "https://"):
		return usagef("send: --server %q: must be an https:// URL", f.server)
	}
	hintKeyboard(s, f.eval.files...)
	files, _, err := manifest.Files(f.eval.files, f.eval.recursive)
	if err != nil {
		return &codedError{exitUsage, err}
	}
	client, err := f.client()
	if err != nil {
		return &codedError{exitUsage, err}
	}
	f.eval.only = f.eval.namespace
	f.eval.operation = string(admissionv1.Create)
	none, err := mapd.Load(mapd.Options{Namespace: f.eval.namespace})
	if err != nil {
		return err
	}
	e := &evaluation{flags: &f.eval, policies: none, out: newPrinter(s.out, f.eval.output), notes: newNotes(s.err)}
	defer e.notes.done()
	for d, err := range readDocuments(manifest.Inputs(files, s.in)) {
		if err == nil && d.Object() == nil {
			continue
		}
		if err == nil {
			err = f.one(ctx, client, e, d)
		}
		var off *unreachableError
		if errors.As(err, &off) {
			e.notes.fail("mapd: send: %s; the objects from %s on were not sent\n", report.Line(off.Error()), d.Where())
			return &codedError{code: exitPartial}
		}
		if err != nil {
			e.failed = true
			e.notes.fail("%s\n", render(err))
		}
	}
	switch {
	case e.failed:
		return &codedError{code: exitPartial}
	case e.denied:
		return &codedError{code: exitDenied}
	}
	return nil
}

func (f *sendFlags) client() (*http.Client, error) {
	config := &tls.Config{}
	if f.caFile != "" {
		pem, err := manifest.ReadFile(f.caFile, manifest.MaxFile)
		if err != nil {
			return nil, err
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s: no certificate in it", f.caFile)
		}
	}
	return httpsclient.New(httpsclient.Options{
		TLS: config, Proxy: http.ProxyFromEnvironment, Connections: 1,
		Timeout: 30 * time.Second, // the longest that an API server waits
	}), nil
}

// one sends one document and prints the response.
func (f *sendFlags) one(ctx context.Context, client *http.Client, e *evaluation, d *mapd.Document) error {
	req, err := e.request(d)
	if err != nil {
		return err
	}
	body, err := bodyOf(req)
	if err != nil {
		return d.Errorf("%w", err)
	}
	answer, err := f.post(ctx, client, body)
	if err != nil {
		return d.Errorf("%s: %w", req.Name(), err)
	}
	if e.flags.output == "review" {
		return e.out.line(answer)
	}
	decision, err := decisionOf(req.Admission, answer)
	if err != nil {
		return d.Errorf("%s: %w", req.Name(), err)
	}
	r := e.policies.Result(req, decision)
	switch {
	case decision.Status != nil:
		e.denied = true
		e.notes.say("%s: denied\n%s: %s\n", req.Name(), d.Where(), report.Excerpts(r.Refusal()))
	case decision.Changed:
		e.notes.say("%s: changed\n", req.Name())
	default:
		e.notes.say("%s: unchanged\n", req.Name())
	}
	for _, w := range decision.Warnings {
		e.notes.say("Warning: %s\n", w)
	}
	return e.out.print(r)
}

func (f *sendFlags) post(ctx context.Context, client *http.Client, body []byte) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, f.server, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		return nil, f.unreachable(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, 2*webhook.MaxBody))
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the server answered %s: %s", resp.Status, bytes.TrimSpace(answer))
	}
	return answer, nil
}

// unreachableError says that no connection to the server was possible, so that sending the next
// object would fail too.
type unreachableError struct{ error }

func (e *unreachableError) Unwrap() error { return e.error }

// unreachable returns err as an *unreachableError with advice if no connection was possible,
// else err.
func (f *sendFlags) unreachable(err error) error {
	var dial *net.OpError
	var verify *tls.CertificateVerificationError
	var unknown x509.UnknownAuthorityError
	switch {
	case errors.As(err, &unknown) && f.caFile == "":
		return &unreachableError{fmt.Errorf("%w; --ca-file names the file with the server's authority", err)}
	case errors.As(err, &unknown):
		return &unreachableError{fmt.Errorf("%w; %s (--ca-file) does not have it", err, f.caFile)}
	case errors.As(err, &verify), errors.As(err, &dial) && dial.Op == "dial":
		return &unreachableError{err}
	}
	return err
}

// reviewOf returns a request in the form in which an API server sends it.
func reviewOf(r *policy.Request) ([]byte, error) {
	kind := map[string]any{"group": r.Kind.Group, "version": r.Kind.Version, "kind": r.Kind.Kind}
	resource := map[string]any{"group": r.Resource.Group, "version": r.Resource.Version, "resource": r.Resource.Resource}
	request := map[string]any{
		"uid": string(r.UID), "kind": kind, "resource": resource, "requestKind": kind, "requestResource": resource,
		"operation": string(r.Operation), "userInfo": r.UserInfo, "dryRun": r.DryRun, "options": r.Options,
		"object": r.Object.Object, "oldObject": nil,
	}
	if r.OldObject != nil {
		request["oldObject"] = r.OldObject.Object
	}
	for k, v := range map[string]string{"name": r.Name, "namespace": r.Namespace, "subResource": r.SubResource, "requestSubResource": r.RequestSubResource} {
		if v != "" {
			request[k] = v
		}
	}
	return json.Marshal(map[string]any{
		"apiVersion": admissionv1.SchemeGroupVersion.String(), "kind": "AdmissionReview", "request": request,
	})
}

// decisionOf interprets a response as an API server does.
func decisionOf(r *policy.Request, answer []byte) (*engine.Decision, error) {
	var review admissionv1.AdmissionReview
	if err := json.Unmarshal(answer, &review); err != nil {
		return nil, fmt.Errorf("the answer is not an AdmissionReview: %w", err)
	}
	resp := review.Response
	switch {
	case resp == nil:
		return nil, errors.New("the answer has no response")
	case resp.UID != r.UID:
		return nil, fmt.Errorf("the answer is for request %q, not %q", resp.UID, r.UID)
	}
	d := &engine.Decision{Object: r.Object, Status: resp.Result, Warnings: resp.Warnings}
	if !resp.Allowed {
		if d.Status == nil {
			return nil, errors.New("denied without a reason")
		}
		return d, nil
	}
	d.Status = nil
	if len(resp.Patch) == 0 || r.Object == nil {
		return d, nil
	}
	var patch []struct {
		Op    string `json:"op"`
		Path  string `json:"path"`
		Value any    `json:"value"`
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(resp.Patch, &patch); err != nil {
		return nil, fmt.Errorf("the patch: %w", err)
	}
	ops := make([]tree.Op, len(patch))
	for i, p := range patch {
		ops[i] = tree.Op(p)
	}
	after, err := tree.Apply(r.Object.Object, ops)
	if err != nil {
		return nil, fmt.Errorf("the patch: %w", err)
	}
	obj, ok := after.(map[string]any)
	if !ok {
		return nil, errors.New("the patch leaves no object")
	}
	d.Object, d.Changed = &unstructured.Unstructured{Object: obj}, true
	return d, nil
}
