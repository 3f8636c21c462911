package watch

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// What the owner has written is known at once, and neither a late event, nor a late
// list, nor a late answer takes it back.
func TestObject(t *testing.T) {
	changed := 0
	o := NewObject[corev1.ConfigMap](ObjectOptions{Namespace: "ns", Name: "a", Changed: func() { changed++ }})
	made := func(uid, version, value string) *corev1.ConfigMap {
		return &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a", UID: types.UID(uid), ResourceVersion: version},
			Data:       map[string]string{"value": value},
		}
	}
	event := func(uid, version, value string) *unstructured.Unstructured {
		m, err := runtime.DefaultUnstructuredConverter.ToUnstructured(made(uid, version, value))
		if err != nil {
			t.Fatal(err)
		}
		return &unstructured.Unstructured{Object: m}
	}
	other := event("9", "99", "other")
	other.SetName("b")
	for _, step := range []struct {
		name string
		do   func() error
		want string // empty: there is none
		read bool
	}{
		{"at first", func() error { return nil }, "", false},
		{"the first look", func() error { return o.Replace(nil, "1") }, "", true},
		{"an event", func() error { return o.Add(event("1", "5", "five")) }, "five", true},
		{"another object", func() error { return o.Add(other) }, "five", true},
		{"a write", func() error { o.Observe(made("1", "8", "eight")); return nil }, "eight", true},
		{"a late event", func() error { return o.Update(event("1", "7", "seven")) }, "eight", true},
		{"a late list", func() error { return o.Replace([]any{event("1", "7", "seven")}, "7") }, "eight", true},
		{"a late list without the object", func() error { return o.Replace(nil, "4") }, "eight", true},
		{"a deletion of an object before it", func() error { return o.Delete(event("0", "9", "")) }, "eight", true},
		{"its deletion", func() error { return o.Delete(event("1", "9", "")) }, "", true},
		{"a late answer", func() error { o.Observe(made("1", "8", "eight")); return nil }, "", true},
		{"made anew", func() error { return o.Add(event("2", "10", "ten")) }, "ten", true},
		{"a list without it", func() error { return o.Replace(nil, "11") }, "", true},
	} {
		before := changed
		if err := step.do(); err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		got := ""
		if c := o.Get(); c != nil {
			got = c.Data["value"]
		}
		if got != step.want || isClosed(o.Read()) != step.read {
			t.Errorf("%s: %q, read %v; want %q, %v", step.name, got, isClosed(o.Read()), step.want, step.read)
		}
		if step.name != "at first" && step.name != "another object" && changed == before {
			t.Errorf("%s: Changed was not called", step.name)
		}
	}
	if o.Add("text") == nil || o.Delete("text") == nil || o.Replace([]any{"text"}, "12") == nil {
		t.Error("a text was taken for an object")
	}
	if err := o.Add(&unstructured.Unstructured{Object: map[string]any{"data": "text"}}); err == nil {
		t.Error("an object that cannot be decoded gives no error")
	}
}
