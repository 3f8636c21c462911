package promote

import (
	"context"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mapd-project/mapd/internal/cluster/election"
)

// leaseName is the Lease that a Promoter holds while it moves policies.
const leaseName = "mapd-promotion"

// patience is how long a Promoter waits for another one.
const patience = 5 * election.Duration

// Alone calls work while no other Promoter works on the cluster. It cancels the context of work
// when that is not certain any more.
func (p *Promoter) Alone(ctx context.Context, namespace string, work func(context.Context) error) error {
	// If the lease cannot even be read, that is reported at once instead of retried.
	if _, err := p.Kubernetes.CoordinationV1().Leases(namespace).Get(ctx, leaseName, metav1.GetOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	var other sync.Once
	said := false
	lease := &election.Lease{
		Kubernetes: p.Kubernetes, Namespace: namespace, Name: leaseName, Identity: p.ID,
		Holder: func(id string) {
			if id != p.ID {
				other.Do(func() {
					said = true
					p.Progress("%s moves policies, or was killed doing so; waiting up to %v for it", id, patience)
				})
			}
		},
	}
	trying, stop := context.WithCancel(ctx)
	defer stop()
	waiting := time.AfterFunc(patience, stop)
	var err error
	held, failed := lease.Hold(trying, func(leading context.Context) {
		waiting.Stop()
		err = work(leading)
		if err != nil && leading.Err() != nil && ctx.Err() == nil { // err is a consequence of losing the lease
			err = fmt.Errorf("the lease %s/%s is lost: another mapd promote may be at work", namespace, leaseName)
		}
	})
	switch {
	case failed != nil:
		return failed
	case held:
		return err
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	other.Do(func() {}) // Holder is called from another goroutine
	if said {
		return fmt.Errorf("another mapd promote is at work (the lease %s/%s); run this again when it has ended", namespace, leaseName)
	}
	return fmt.Errorf("the lease %s/%s cannot be written: mapd promote needs that namespace, and the verbs get, create and update for its leases", namespace, leaseName)
}
