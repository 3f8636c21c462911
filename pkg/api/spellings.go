package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "sigs.k8s.io/json"
)

// Spellings maps each apiVersion of one kind to a constructor of its Go type.
type Spellings map[string]func() any

// JSON returns u as JSON text.
func JSON(u *unstructured.Unstructured) ([]byte, error) {
	if u == nil || u.Object == nil {
		return nil, errors.New("no object given")
	}
	return json.Marshal(u.Object)
}

// DecodeSpelling decodes data strictly into out, the v1 type of kind, and returns the group and
// version in which it was written. It fills in no defaults. After an error out must not be
// used.
func DecodeSpelling(data []byte, kind string, spellings Spellings, out any) (schema.GroupVersion, error) {
	var head struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(data, &head); err != nil {
		return schema.GroupVersion{}, err
	}
	construct, ok := spellings[head.APIVersion]
	if !ok || head.Kind != kind {
		return schema.GroupVersion{}, fmt.Errorf("apiVersion %q, kind %q: not a %s of %s", head.APIVersion, head.Kind, kind, spellings)
	}
	gv, err := schema.ParseGroupVersion(head.APIVersion)
	if err != nil {
		return gv, err
	}

	obj := construct()
	same := reflect.TypeOf(obj) == reflect.TypeOf(out)
	if same {
		obj = out
	}
	strict, err := kjson.UnmarshalStrict(data, obj)
	if err != nil {
		return gv, err
	}
	if gv.Group == OwnGroup {
		strict = slices.DeleteFunc(strict, func(err error) bool { path, _ := fieldOf(err); return path == "status" })
	}
	if len(strict) > 0 {
		return gv, runtime.NewStrictDecodingError(strict)
	}
	if same {
		return gv, nil
	}
	// The versions differ in their Go types only, so JSON converts one into the other without
	// loss.
	plain, err := json.Marshal(obj)
	if err != nil {
		return gv, err
	}
	return gv, json.Unmarshal(plain, out)
}

func (s Spellings) String() string {
	return strings.Join(slices.Sorted(maps.Keys(s)), ", ")
}
