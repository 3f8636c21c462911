package load

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
)

// answer is the expected answer to a Review. Answers with the same bytes are recognized without
// decoding, so that a check costs next to nothing.
type answer struct {
	before, after []byte // the bytes before and after the UID
	patch         []byte
}

func newAnswer(body []byte, id string) (*answer, error) {
	response, err := decode(body, id)
	if err != nil {
		return nil, err
	}
	if err := allowed(response); err != nil {
		return nil, err
	}
	a := &answer{patch: response.Patch}
	if before, after, ok := bytes.Cut(body, []byte(id)); ok {
		a.before, a.after = bytes.Clone(before), bytes.Clone(after)
	}
	return a, nil
}

func allowed(response *admissionv1.AdmissionResponse) error {
	if response.Allowed {
		return nil
	}
	text, err := json.Marshal(response.Result)
	if err != nil {
		return err
	}
	return fmt.Errorf("refused: %s", text)
}

// check compares the answer to the request with the UID id.
func (a *answer) check(body []byte, id string) error {
	if rest, ok := bytes.CutPrefix(body, a.before); ok && len(a.before) > 0 {
		if rest, ok := bytes.CutPrefix(rest, []byte(id)); ok && bytes.Equal(rest, a.after) {
			return nil
		}
	}
	response, err := decode(body, id)
	if err != nil {
		return err
	}
	if err := allowed(response); err != nil {
		return err
	}
	if !bytes.Equal(response.Patch, a.patch) {
		return fmt.Errorf("another patch than before:\n%.2000s\nand before\n%.2000s", response.Patch, a.patch)
	}
	return nil
}

// worker sends on one connection.
type worker struct {
	client     *Client
	connection *http.Client
	review     *Review
	want       *answer

	body   []byte
	answer bytes.Buffer
	times  []time.Duration
}

// one sends the n-th request and checks the answer. Only good ones are timed.
func (w *worker) one(ctx context.Context, n int) error {
	body, id := w.review.next(w.body, n)
	w.body = body
	start := time.Now()
	if err := w.client.send(ctx, w.connection, body, &w.answer); err != nil {
		return err
	}
	took := time.Since(start)
	if err := w.want.check(w.answer.Bytes(), id); err != nil {
		return err
	}
	w.times = append(w.times, took)
	return nil
}
