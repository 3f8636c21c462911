package expand_test

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/pkg/legacy/expand"
)

func Example() {
	cronJob := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "batch/v1", "kind": "CronJob",
		"metadata": map[string]any{"name": "Backup", "namespace": "shop"},
		"spec": map[string]any{"jobTemplate": map[string]any{"spec": map[string]any{
			"template": map[string]any{"spec": map[string]any{"restartPolicy": "Never"}},
		}}},
	}}
	objects, err := expand.New(nil).Expand(cronJob, expand.Options{})
	if err != nil {
		fmt.Println(err)
	}
	for _, o := range objects {
		owner := o.Made.GetOwnerReferences()[0]
		fmt.Println(o.Made.GetKind(), o.Made.GetNamespace(), o.Made.GetName(), "of", owner.Kind, owner.Name)
	}
	// Output:
	// Pod shop backup-job-pod of Job backup-job
	// Job shop backup-job of CronJob Backup
}
