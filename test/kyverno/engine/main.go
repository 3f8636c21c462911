// Command engine answers one question: what does Kyverno do to an object?
//
// It is Kyverno itself: the engine that its webhook mutates with, at the version of go.mod,
// behind a harness that does the little which the webhook does around it. It reads policies
// and requests as JSON, one on a line, and writes a line for each, so that a test in another
// module can ask it.
//
// It is a module of its own and apart from the tests, since Kyverno 1.19.1 does not compile with
// the version of Kubernetes that mapd has.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
)

// question is a line of the input. Policy is for all questions up to the next one that has one.
type question struct {
	Policy  json.RawMessage `json:"policy,omitempty"`
	Request *Request        `json:"request,omitempty"`
}

// answer is a line of the output. Failed is an error of the harness.
type answer struct {
	Result
	Failed string `json:"failed,omitempty"`
}

func main() {
	in := bufio.NewReaderSize(os.Stdin, 1<<20)
	out := bufio.NewWriter(os.Stdout)
	enc, dec := json.NewEncoder(out), json.NewDecoder(in)
	var policy Policy
	for {
		var q question
		if err := dec.Decode(&q); err != nil {
			return
		}
		a := ask(&policy, q)
		if err := enc.Encode(a); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		if err := out.Flush(); err != nil {
			os.Exit(1)
		}
	}
}

func ask(policy *Policy, q question) (a answer) {
	defer func() {
		if x := recover(); x != nil {
			a = answer{Failed: fmt.Sprint("panic: ", x)}
		}
	}()
	if q.Policy != nil {
		p, err := Decode(q.Policy)
		if err != nil {
			return answer{Failed: err.Error()}
		}
		*policy = p
	}
	if q.Request == nil || *policy == nil {
		return answer{}
	}
	r, err := (*policy).Mutate(context.Background(), *q.Request)
	if err != nil {
		return answer{Failed: err.Error()}
	}
	return answer{Result: r}
}
