// Package list lists objects of a cluster.
package list

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/pager"
)

// All returns all objects that a client's List selects. It lists page by page. If a continue
// token has expired, it lists everything again in one request.
func All[T any, L runtime.Object](ctx context.Context, page func(context.Context, metav1.ListOptions) (L, error), options metav1.ListOptions) ([]T, error) {
	found, _, err := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		return page(ctx, o)
	}).List(ctx, options)
	if err != nil {
		return nil, err
	}
	var all []T
	err = each(found, func(one T) error { all = append(all, one); return nil })
	return all, err
}

// Each calls f for all objects that a client's List selects, page by page, so that at most one
// page is in memory. If a continue token has expired, the following pages show the present state,
// so an object that was created or deleted meanwhile may be missing.
func Each[T any, L runtime.Object](ctx context.Context, page func(context.Context, metav1.ListOptions) (L, error), options metav1.ListOptions, f func(T) error) error {
	for {
		found, err := page(ctx, options)
		var status apierrors.APIStatus
		if options.Continue != "" && apierrors.IsResourceExpired(err) && errors.As(err, &status) && status.Status().Continue != "" {
			options.Continue = status.Status().Continue
			continue
		}
		if err != nil {
			return err
		}
		if err := each(found, f); err != nil {
			return err
		}
		at, err := meta.ListAccessor(found)
		if err != nil {
			return err
		}
		if options.Continue = at.GetContinue(); options.Continue == "" {
			return nil
		}
	}
}

// each calls f with the objects of a list.
func each[T any](found runtime.Object, f func(T) error) error {
	return meta.EachListItem(found, func(item runtime.Object) error {
		one, ok := item.(T)
		if !ok {
			return fmt.Errorf("the API server lists a %T where there should be a %T", item, *new(T))
		}
		return f(one)
	})
}
