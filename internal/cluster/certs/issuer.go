package certs

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/mapd-project/mapd/internal/cluster/watch"
	"github.com/mapd-project/mapd/pkg/servingcert"
)

// Options configure an Issuer. Kubernetes, Dynamic, Namespace, Secret and Hosts are required.
type Options struct {
	Kubernetes        kubernetes.Interface
	Dynamic           dynamic.Interface
	Namespace, Secret string
	// Hosts are the names and addresses by which API servers call mapd.
	Hosts []string
	// Validity is how long serving certificates are valid, and CAValidity how long authorities
	// are; 0 means defaultValidity and defaultCAValidity. Each is renewed after two thirds of
	// that time. Waiting times in between, such as for API servers to learn of a new authority,
	// are shorter for shorter validities.
	Validity, CAValidity time.Duration
	Log                  *slog.Logger // nil: no log
}

// How long certificates and authorities are valid by default.
const (
	defaultValidity   = 90 * 24 * time.Hour
	defaultCAValidity = 5 * 365 * 24 * time.Hour
)

// grace is how long a replica ignores a Secret that cannot have resulted from a rotation. If the
// holder of the lease has better certificates, it restores them within a second.
const grace = 10 * time.Second

// pace is the minimum time between two steps.
const pace = 50 * time.Millisecond

// Issuer is a Source that issues its certificates itself and keeps them, with its
// authority, in a Secret. It is safe for concurrent use.
type Issuer struct {
	o   Options
	log *slog.Logger

	secret        *watch.Object[*corev1.Secret]
	secretChanged watch.Signal
	serving       atomic.Pointer[tls.Certificate]
	changed       watch.Listeners
	adopted       watch.Signal // notifies Maintain

	mu         sync.Mutex // guards the following fields
	held       state      // the state that is used
	problems   string     // the last reported problems with the Secret
	bundle     []byte
	unrepaired *time.Timer // runs while the Secret is not a successor of held
}

// New returns an Issuer that has nothing to serve before Run has read the Secret.
func New(o Options) *Issuer {
	if o.Validity <= 0 {
		o.Validity = defaultValidity
	}
	if o.CAValidity <= 0 {
		o.CAValidity = defaultCAValidity
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	i := &Issuer{
		o: o, log: o.Log.With("secret", o.Namespace+"/"+o.Secret), secretChanged: watch.NewSignal(), adopted: watch.NewSignal(),
	}
	i.secret = watch.NewObject[corev1.Secret](watch.ObjectOptions{
		Client: o.Dynamic, Resource: corev1.SchemeGroupVersion.WithResource("secrets"), Namespace: o.Namespace, Name: o.Secret,
		Log: o.Log, Changed: i.secretChanged.Notify,
	})
	return i
}

// Changed returns a new channel for the caller; see Source.
func (i *Issuer) Changed() <-chan struct{} { return i.changed.Add() }

// GetCertificate returns the certificate in use, for tls.Config.
func (i *Issuer) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	cert := i.serving.Load()
	if cert == nil {
		return nil, i.none()
	}
	return cert, nil
}

func (i *Issuer) none() error {
	return fmt.Errorf("no certificate in Secret %s/%s yet", i.o.Namespace, i.o.Secret)
}

// Bundle returns the authorities that API servers have to trust, in PEM; empty
// until the Secret is read or made.
func (i *Issuer) Bundle() []byte {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.bundle
}

// Check returns an error if no valid certificate is available.
func (i *Issuer) Check() error {
	cert := i.serving.Load()
	if cert == nil {
		return i.none()
	}
	if now := time.Now(); now.After(cert.Leaf.NotAfter) {
		return fmt.Errorf("the certificate in Secret %s/%s ended at %s", i.o.Namespace, i.o.Secret, cert.Leaf.NotAfter.UTC().Format(time.RFC3339))
	}
	return nil
}

// Run watches the Secret until ctx is done, and uses each new content at once. It needs rights to
// that Secret only. An Issuer runs once.
func (i *Issuer) Run(ctx context.Context) error {
	var watching sync.WaitGroup
	defer watching.Wait()
	watching.Go(func() { i.secret.Run(ctx) })
	for i.secretChanged.Wait(ctx) {
		i.adopt()
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.stopTimer()
	return nil
}

// wrote uses the state s, which Maintain has written to secret.
func (i *Issuer) wrote(secret *corev1.Secret, s state) {
	i.secret.Observe(secret)
	i.mu.Lock()
	defer i.mu.Unlock()
	if current := i.secret.Get(); current != nil && watch.Older(secret, current) {
		return
	}
	i.stopTimer()
	i.problems = ""
	i.use(s)
}

func (i *Issuer) stopTimer() {
	if i.unrepaired != nil {
		i.unrepaired.Stop()
		i.unrepaired = nil
	}
}

// adopt uses the Secret as it is stored now, as far as it is valid.
func (i *Issuer) adopt() {
	i.mu.Lock()
	defer i.mu.Unlock()
	now, secret := time.Now(), i.secret.Get()
	var found state
	var problems []string
	if secret != nil {
		found, problems = parse(secret.Data)
	} else if i.held.bundle != nil {
		problems = []string{"is gone"}
	}
	i.stopTimer()
	if !succeeds(found, i.held, now) {
		if len(problems) == 0 {
			problems = []string{"holds certificates of authorities that were never announced"}
		}
		if secret != nil {
			i.unrepaired = time.AfterFunc(grace, func() { i.acceptUnannounced(secret) })
		}
	}
	if text := strings.Join(problems, "; "); text != i.problems {
		i.problems = text
		if text != "" && i.held.bundle != nil {
			i.log.Warn("the Secret is damaged; the current certificate stays in use", "problems", text)
		}
	}
	i.use(merge(found, i.held, now))
}

// acceptUnannounced uses a Secret whose authorities were never announced, because no replica has
// repaired it within grace.
func (i *Issuer) acceptUnannounced(secret *corev1.Secret) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.secret.Get() != secret {
		return
	}
	found, _ := parse(secret.Data)
	if now := time.Now(); usable(found.leaf, now) && trusted(found.leaf.Cert, found.bundle, now) {
		i.log.Warn("nobody has repaired the Secret in time: using its certificates, although their authorities were never in the webhook configurations")
		i.use(merge(found, state{}, now))
	}
}

// use serves the certificate in s and announces its authorities. i.mu is held.
func (i *Issuer) use(s state) {
	i.held = s
	changed := false
	if current := i.serving.Load(); s.leaf.Cert != nil && (current == nil || !same(current.Leaf, s.leaf.Cert)) {
		i.serving.Store(s.leaf.Served())
		i.log.Info("serving certificate in use", "until", s.leaf.Cert.NotAfter.UTC().Format(time.RFC3339), "hosts", strings.Join(hosts(s.leaf.Cert), ","))
		changed = true
	}
	if bundle := servingcert.Encode(s.bundle...); string(bundle) != string(i.bundle) {
		i.bundle = bundle
		changed = true
	}
	if changed {
		i.changed.Notify()
	}
	i.adopted.Notify() // even if only an annotation that asks for a rotation has changed
}

// Maintain creates, renews, rotates and repairs the content of the Secret until ctx is done. Only
// the holder of the lease may call it, while Run runs. applied returns, in PEM, the bundle that
// API servers use for mapd: the authorities that all entries of the webhook configurations
// contain, or nil if there are no entries. Maintain returns an error if the API server refuses
// its requests; the caller may call it again.
func (i *Issuer) Maintain(ctx context.Context, applied func() []byte) error {
	if len(i.o.Hosts) == 0 {
		return errors.New("certificates: no host to make a certificate for")
	}
	select {
	case <-ctx.Done():
		return nil
	case <-i.secret.Read():
	}
	var since time.Time
	for {
		var trust []*x509.Certificate
		if text := applied(); text != nil {
			if trust, _ = parseCerts(text); trust == nil {
				trust = []*x509.Certificate{}
			}
		}
		at, err := i.maintain(ctx, trust, &since)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("certificates in Secret %s/%s: %w", i.o.Namespace, i.o.Secret, err)
		}
		// The pace limits the writes if another writer keeps changing the Secret.
		if !watch.Sleep(ctx, pace, nil, nil) || !watch.Sleep(ctx, time.Until(at), i.adopted, nil) {
			return nil
		}
	}
}

// maintain takes one step, and returns the time of the next one.
func (i *Issuer) maintain(ctx context.Context, applied []*x509.Certificate, since *time.Time) (time.Time, error) {
	// The watched Secret decides whether there is anything to do. The step itself starts from the
	// API server's Secret, which may be newer.
	secret := i.secret.Get()
	for attempt := 0; ; attempt++ {
		s, wake, did, err := i.plan(secret, applied, *since)
		if err != nil {
			return wake, err
		}
		upToDate := false
		if secret != nil {
			if upToDate, err = s.stored(secret.Data); err != nil {
				return wake, err
			}
		}
		if upToDate {
			*since = s.since
			return wake, nil
		}
		if attempt > 10 {
			return wake, errors.New("somebody else keeps writing them")
		}
		if attempt > 0 {
			written, err := i.write(ctx, secret, s)
			switch {
			case err == nil:
				*since = s.since
				i.logWritten(secret == nil, did)
				i.wrote(written, s)
				return wake, nil
			case !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) && !apierrors.IsNotFound(err):
				return wake, err
			}
			i.log.Debug("somebody else wrote the Secret; reading it again")
		}
		secret, err = i.o.Kubernetes.CoreV1().Secrets(i.o.Namespace).Get(ctx, i.o.Secret, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err) && attempt > 2: // the namespace may have been deleted
			return wake, apierrors.NewNotFound(corev1.Resource("namespaces"), i.o.Namespace)
		case apierrors.IsNotFound(err):
			secret = nil
		case err != nil:
			return wake, err
		}
	}
}

// plan computes the next step from the Secret, which may be nil, and from the state of this
// process.
func (i *Issuer) plan(secret *corev1.Secret, applied []*x509.Certificate, since time.Time) (s state, wake time.Time, did []string, err error) {
	i.mu.Lock()
	held := i.held
	i.mu.Unlock()
	now := time.Now()
	var found state
	t := terms{i.o.Hosts, i.o.Validity, i.o.CAValidity, ""}
	if secret != nil {
		found, _ = parse(secret.Data)
		t.rotate = secret.Annotations[rotateAnnotation]
	}
	s = merge(found, held, now)
	s.since = since
	return step(s, now, applied, t)
}

func (i *Issuer) logWritten(isNew bool, did []string) {
	switch {
	case isNew:
		i.log.Info("the Secret was created")
	case len(did) == 0:
		i.log.Info("the Secret was repaired")
	}
	for _, text := range did {
		i.log.Info("certificates: " + text)
	}
}

// write stores s in the Secret, or in a new one if secret is nil. Data of others in the Secret
// stays.
func (i *Issuer) write(ctx context.Context, secret *corev1.Secret, s state) (*corev1.Secret, error) {
	data, err := s.data()
	if err != nil {
		return nil, err
	}
	secrets := i.o.Kubernetes.CoreV1().Secrets(i.o.Namespace)
	if secret == nil {
		return secrets.Create(ctx, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{
				Name: i.o.Secret, Namespace: i.o.Namespace,
				Labels: map[string]string{"app.kubernetes.io/name": "mapd", "app.kubernetes.io/part-of": "mapd"},
			},
			Type: corev1.SecretTypeOpaque,
			Data: data,
		}, metav1.CreateOptions{FieldManager: "mapd"})
	}
	secret = secret.DeepCopy()
	if secret.Data == nil {
		secret.Data = map[string][]byte{}
	}
	for _, key := range ownKeys {
		delete(secret.Data, key)
	}
	maps.Copy(secret.Data, data)
	return secrets.Update(ctx, secret, metav1.UpdateOptions{FieldManager: "mapd"})
}
