package main

import (
	"bytes"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/mapd-project/mapd/internal/document/manifest"
	"github.com/mapd-project/mapd/pkg/engine"
	"github.com/mapd-project/mapd/pkg/mapd"
)

// An object that cannot be printed is an error of that object, in every format, and
// those after it are printed.
func TestPrintNeverLosesAnObject(t *testing.T) {
	const objects = "apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: bad}\n---\napiVersion: example.com/v1\nkind: Widget\nmetadata: {name: good}\n"
	for _, format := range outputs {
		if format == "name" {
			continue // the name is there
		}
		t.Run(format, func(t *testing.T) {
			var out, said bytes.Buffer
			none, err := mapd.Load(mapd.Options{})
			if err != nil {
				t.Fatal(err)
			}
			e := &evaluation{
				flags: &evalFlags{operation: "CREATE", namespace: "default"}, out: newPrinter(&out, format), notes: newNotes(&said),
				policies: none,
			}
			for d, err := range readDocuments(manifest.Inputs([]string{manifest.Stdin}, strings.NewReader(objects))) {
				req := e.take(d, err)
				if req == nil {
					t.Fatal(said.String())
				}
				decision := &engine.Decision{Object: req.Admission.Object}
				if req.Admission.Name == "bad" {
					// No policy does that: this is about what would happen if one did.
					decision.Object, decision.Changed = req.Admission.Object.DeepCopy(), true
					decision.Object.Object["spec"] = map[string]any{"ratio": math.NaN()}
				}
				if err := e.show(none.Result(req, decision)); err != nil {
					t.Fatal(err)
				}
			}
			var coded *codedError
			if err := e.outcome(); !errors.As(err, &coded) || coded.code != exitPartial {
				t.Errorf("verdict = %v, want exit code %d", err, exitPartial)
			}
			if text := said.String(); !strings.Contains(text, "document 1, line 1: Widget default/bad: ") {
				t.Errorf("said %q, nothing about the object", text)
			}
			if text := out.String(); strings.Contains(text, "bad") || format != "diff" && format != "markdown" && text == "" || (format == "yaml" || format == "json") && !strings.Contains(text, "good") {
				t.Errorf("printed %q", text)
			}
		})
	}
}
