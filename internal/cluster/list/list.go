// Package list lists objects of a cluster.
package list

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/pager"
)

// All returns all objects that a client's List selects. It asks page by page; if the API
// server has forgotten where a page ended, it asks for all at once.
func All[T any, L runtime.Object](ctx context.Context, page func(context.Context, metav1.ListOptions) (L, error), options metav1.ListOptions) ([]T, error) {
	found, _, err := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		return page(ctx, o)
	}).List(ctx, options)
	if err != nil {
		return nil, err
	}
	var all []T
	err = meta.EachListItem(found, func(item runtime.Object) error {
		one, ok := item.(T)
		if !ok {
			return fmt.Errorf("the API server lists a %T where there should be a %T", item, *new(T))
		}
		all = append(all, one)
		return nil
	})
	return all, err
}
