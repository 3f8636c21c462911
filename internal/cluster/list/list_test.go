package list_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mapd-project/mapd/internal/cluster/list"
)

// pages answers as an API server does that has n ConfigMaps, and forgets where the page
// before the one with number forgets ended.
func pages(n, forgets int) func(context.Context, metav1.ListOptions) (*corev1.ConfigMapList, error) {
	asked := 0
	return func(_ context.Context, o metav1.ListOptions) (*corev1.ConfigMapList, error) {
		if asked++; asked == forgets && o.Continue != "" {
			err := apierrors.NewResourceExpired("forgotten")
			err.ErrStatus.Continue = o.Continue
			return nil, err
		}
		from, _ := strconv.Atoi(o.Continue)
		to := n
		if o.Limit > 0 {
			to = min(n, from+int(o.Limit))
		}
		page := &corev1.ConfigMapList{}
		for i := from; i < to; i++ {
			page.Items = append(page.Items, corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint(i)}})
		}
		if to < n {
			page.Continue = strconv.Itoa(to)
		}
		return page, nil
	}
}

func TestAll(t *testing.T) {
	for _, tt := range []struct{ n, forgets int }{{0, 0}, {3, 0}, {10, 0}, {11, 0}, {35, 0}, {35, 2}, {35, 4}} {
		got, err := list.All[*corev1.ConfigMap](t.Context(), pages(tt.n, tt.forgets), metav1.ListOptions{Limit: 10})
		if err != nil || len(got) != tt.n || !slices.IsSortedFunc(got, func(a, b *corev1.ConfigMap) int {
			x, _ := strconv.Atoi(a.Name)
			y, _ := strconv.Atoi(b.Name)
			return x - y
		}) {
			t.Errorf("%+v: %d objects, %v", tt, len(got), err)
		}
	}
	if _, err := list.All[*corev1.Secret](t.Context(), pages(1, 0), metav1.ListOptions{}); err == nil {
		t.Error("a ConfigMap is taken for a Secret")
	}
}

// Each goes on where it was, with one page in memory.
func TestEach(t *testing.T) {
	for _, tt := range []struct{ n, forgets int }{{0, 0}, {3, 0}, {10, 0}, {11, 0}, {35, 0}, {35, 2}, {35, 4}} {
		var got []string
		err := list.Each(t.Context(), pages(tt.n, tt.forgets), metav1.ListOptions{Limit: 10}, func(m *corev1.ConfigMap) error {
			got = append(got, m.Name)
			return nil
		})
		if err != nil || len(got) != tt.n || tt.n > 0 && got[tt.n-1] != fmt.Sprint(tt.n-1) {
			t.Errorf("%+v: %v, %v", tt, got, err)
		}
	}
	stop := errors.New("enough")
	seen := 0
	err := list.Each(t.Context(), pages(35, 0), metav1.ListOptions{Limit: 10}, func(*corev1.ConfigMap) error {
		if seen++; seen == 12 {
			return stop
		}
		return nil
	})
	if !errors.Is(err, stop) || seen != 12 {
		t.Errorf("%d objects, %v", seen, err)
	}
}
