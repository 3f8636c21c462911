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
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// Options say where a Manager keeps its certificates and what they are like.
// Kubernetes, Namespace, Secret and Hosts are required.
type Options struct {
	Kubernetes        kubernetes.Interface
	Namespace, Secret string
	// Hosts are the names and addresses that API servers call us by.
	Hosts []string
	// Validity of serving certificates and of authorities; 0 means
	// DefaultValidity and DefaultCAValidity. Both are renewed when two thirds of
	// it are over. Times in between, such as for API servers to hear of a new
	// authority, shrink with them.
	Validity, CAValidity time.Duration
	Log                  *slog.Logger // nil: no log
}

// What certificates and authorities are valid for unless told otherwise.
const (
	DefaultValidity   = 90 * 24 * time.Hour
	DefaultCAValidity = 5 * 365 * 24 * time.Hour
)

// grace is how long a replica keeps what it serves when the Secret holds
// something that has not come about by rotation: the holder of the lease, if it
// knows better, puts it right within a second.
const grace = 10 * time.Second

// pace is the least time between two steps.
const pace = 50 * time.Millisecond

// Manager is a Source whose authority and certificates are in a Secret. It is
// safe for concurrent use.
type Manager struct {
	o   Options
	log *slog.Logger
	now func() time.Time

	serving atomic.Pointer[tls.Certificate]
	listeners

	mu       sync.Mutex // of what follows
	held     state      // what to go by
	secret   *corev1.Secret
	problems string        // with the Secret, as last reported
	synced   chan struct{} // closed once the Secret, or its absence, has been seen
	bundle   []byte
	late     *time.Timer // runs while the Secret is not a successor of held
}

// New returns a Manager that has nothing to serve before Run has read the Secret.
func New(o Options) *Manager {
	if o.Validity <= 0 {
		o.Validity = DefaultValidity
	}
	if o.CAValidity <= 0 {
		o.CAValidity = DefaultCAValidity
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Manager{
		o: o, log: o.Log.With("secret", o.Namespace+"/"+o.Secret), now: time.Now,
		synced: make(chan struct{}),
	}
}

// GetCertificate returns the certificate in use, for tls.Config.
func (m *Manager) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	cert := m.serving.Load()
	if cert == nil {
		return nil, m.none()
	}
	return cert, nil
}

func (m *Manager) none() error {
	return fmt.Errorf("no certificate in Secret %s/%s yet", m.o.Namespace, m.o.Secret)
}

// Bundle is whom the API servers have to trust, in PEM; empty as long as the
// Secret has not been read or made.
func (m *Manager) Bundle() []byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.bundle
}

// Check says why there is no certificate that is valid now.
func (m *Manager) Check() error {
	cert := m.serving.Load()
	if cert == nil {
		return m.none()
	}
	if now := m.now(); now.After(cert.Leaf.NotAfter) {
		return fmt.Errorf("the certificate in Secret %s/%s ended at %s", m.o.Namespace, m.o.Secret, cert.Leaf.NotAfter.UTC().Format(time.RFC3339))
	}
	return nil
}

// Run watches the Secret, and it alone, until ctx is done: what somebody writes
// there is served at once. A Manager runs once.
func (m *Manager) Run(ctx context.Context) error {
	factory := informers.NewSharedInformerFactoryWithOptions(m.o.Kubernetes, 0,
		informers.WithNamespace(m.o.Namespace),
		informers.WithTweakListOptions(func(l *metav1.ListOptions) {
			l.FieldSelector = fields.OneTermEqualSelector("metadata.name", m.o.Secret).String()
		}))
	informer := factory.Core().V1().Secrets().Informer()
	// Whoever watches a Secret waits for what it does not hold; the reason is said
	// once for as long as it stays the same.
	var failure string
	err := informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
		if text := err.Error(); !apierrors.IsResourceExpired(err) && text != failure {
			failure = text
			m.log.Warn("the Secret cannot be watched", "error", text)
		}
	})
	if err != nil {
		return err
	}
	registration, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { m.observe(obj) },
		UpdateFunc: func(_, obj any) { m.observe(obj) },
		DeleteFunc: func(obj any) {
			if last, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = last.Obj
			}
			m.deleted(obj)
		},
	})
	if err != nil {
		return err
	}
	factory.Start(ctx.Done())
	defer factory.Shutdown()
	if !cache.WaitForCacheSync(ctx.Done(), registration.HasSynced) {
		return nil
	}
	close(m.synced)
	<-ctx.Done()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.late != nil {
		m.late.Stop()
	}
	return nil
}

func (m *Manager) observe(obj any) {
	if secret, ok := obj.(*corev1.Secret); ok && secret.Name == m.o.Secret {
		m.mu.Lock()
		defer m.mu.Unlock()
		// Our own write is known before the watch tells of it and of what it replaced.
		if m.secret != nil && older(secret, m.secret) {
			return
		}
		m.secret = secret
		m.adopt()
	}
}

// wrote goes by what was just written.
func (m *Manager) wrote(secret *corev1.Secret, s state) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.secret != nil && older(secret, m.secret) {
		return
	}
	if m.late != nil {
		m.late.Stop()
		m.late = nil
	}
	m.secret, m.problems = secret, ""
	m.use(s)
}

func (m *Manager) deleted(obj any) {
	if secret, ok := obj.(*corev1.Secret); ok && secret.Name == m.o.Secret {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.secret != nil && m.secret.UID == secret.UID {
			m.secret = nil
			m.adopt()
		}
	}
}

func older(a, b *corev1.Secret) bool {
	order, err := resourceversion.CompareResourceVersion(a.ResourceVersion, b.ResourceVersion)
	return err == nil && order < 0
}

// adopt goes by the Secret, as far as it can be used. m.mu is held.
func (m *Manager) adopt() {
	now := m.now()
	var found state
	var problems []string
	if m.secret != nil {
		found, problems = parse(m.secret.Data)
	} else if m.held.bundle != nil {
		problems = []string{"is gone"}
	}
	if m.late != nil {
		m.late.Stop()
		m.late = nil
	}
	if !succeeds(found, m.held, now) {
		if len(problems) == 0 {
			problems = []string{"holds certificates of authorities that were never announced"}
		}
		if m.secret != nil {
			secret := m.secret
			m.late = time.AfterFunc(grace, func() { m.give(secret) })
		}
	}
	if text := strings.Join(problems, "; "); text != m.problems {
		m.problems = text
		if text != "" && m.held.bundle != nil {
			m.log.Warn("the Secret is damaged; what was in use stays in use", "problems", text)
		}
	}
	m.use(merge(found, m.held, now))
}

// give gives in: nobody has put right what secret holds.
func (m *Manager) give(secret *corev1.Secret) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.secret != secret {
		return
	}
	found, _ := parse(secret.Data)
	if now := m.now(); found.leaf.ok(now) && trusted(found.leaf.cert, found.bundle, now) {
		m.log.Warn("going by the Secret although its authorities were never announced: nobody has repaired it")
		m.use(merge(found, state{}, now))
	}
}

// use serves and announces what s holds. m.mu is held.
func (m *Manager) use(s state) {
	m.held = s
	changed := false
	if current := m.serving.Load(); s.leaf.cert != nil && (current == nil || !same(current.Leaf, s.leaf.cert)) {
		m.serving.Store(s.leaf.served())
		m.log.Info("certificate in use", "until", s.leaf.cert.NotAfter.UTC().Format(time.RFC3339), "hosts", strings.Join(hosts(s.leaf.cert), ","))
		changed = true
	}
	if bundle := encodeCerts(s.bundle...); string(bundle) != string(m.bundle) {
		m.bundle = bundle
		changed = true
	}
	// A rotation may be asked for without any other change.
	m.wake(changed)
}

// Maintain makes, renews and rotates what the Secret holds, and repairs it, until
// ctx is done. Only the holder of a lease may call it, while Run runs. applied
// returns the bundle that API servers have for us, in PEM: what is in all entries
// of the webhook configurations; nil if there are no entries. Maintain returns an
// error when the API server does not let it do its work, and can be called again.
func (m *Manager) Maintain(ctx context.Context, applied func() []byte) error {
	if len(m.o.Hosts) == 0 {
		return errors.New("certificates: no host to make a certificate for")
	}
	select {
	case <-ctx.Done():
		return nil
	case <-m.synced:
	}
	changed, stop := m.listen(true)
	defer stop()
	var since time.Time
	for {
		var trust []*x509.Certificate
		if text := applied(); text != nil {
			if trust, _ = parseCerts(text); trust == nil {
				trust = []*x509.Certificate{}
			}
		}
		at, err := m.maintain(ctx, trust, &since)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("certificates in Secret %s/%s: %w", m.o.Namespace, m.o.Secret, err)
		}
		// Should somebody else insist on what is in the Secret, it is a quiet quarrel.
		wait(ctx, pace, nil)
		wait(ctx, at.Sub(m.now()), changed)
		if ctx.Err() != nil {
			return nil
		}
	}
}

// wait waits for ctx, for d, or for c.
func wait(ctx context.Context, d time.Duration, c <-chan struct{}) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-c:
	case <-timer.C:
	}
}

// maintain takes one step and says when to take the next.
func (m *Manager) maintain(ctx context.Context, applied []*x509.Certificate, since *time.Time) (time.Time, error) {
	// What the watch has told decides whether there is anything to do. If so it is
	// done to what the API server has, which may be newer.
	secret := m.current()
	for attempt := 0; ; attempt++ {
		m.mu.Lock()
		held := m.held
		m.mu.Unlock()
		now := m.now()
		var found state
		t := terms{m.o.Hosts, m.o.Validity, m.o.CAValidity, ""}
		stored := &corev1.Secret{}
		if secret != nil {
			stored = secret
			found, _ = parse(secret.Data)
			t.rotate = secret.Annotations[RotateAnnotation]
		}
		s := merge(found, held, now)
		s.since = *since
		s, wake, did, err := step(s, now, applied, t)
		if err != nil {
			return wake, err
		}
		ok, err := s.stored(stored.Data)
		if err != nil {
			return wake, err
		}
		if ok && secret != nil {
			*since = s.since
			return wake, nil
		}
		if attempt == 0 {
			secret, err = m.o.Kubernetes.CoreV1().Secrets(m.o.Namespace).Get(ctx, m.o.Secret, metav1.GetOptions{})
			switch {
			case apierrors.IsNotFound(err):
				secret = nil
			case err != nil:
				return wake, err
			}
			continue
		}
		if attempt > 10 {
			return wake, errors.New("somebody else keeps writing them")
		}
		written, err := m.write(ctx, secret, s)
		switch {
		case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err), apierrors.IsNotFound(err):
			m.log.Debug("somebody else wrote the Secret; reading it again")
			secret, err = m.o.Kubernetes.CoreV1().Secrets(m.o.Namespace).Get(ctx, m.o.Secret, metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				secret, err = nil, nil
				if attempt > 2 { // the namespace may be gone
					return wake, apierrors.NewNotFound(corev1.Resource("namespaces"), m.o.Namespace)
				}
			}
			if err != nil {
				return wake, err
			}
			continue
		case err != nil:
			return wake, err
		}
		*since = s.since
		switch {
		case secret == nil:
			m.log.Info("the Secret was made")
		case len(did) == 0:
			m.log.Info("the Secret was repaired")
		}
		for _, text := range did {
			m.log.Info("certificates: " + text)
		}
		m.wrote(written, s)
		return wake, nil
	}
}

func (m *Manager) current() *corev1.Secret {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.secret
}

// write stores s in secret, which is nil if there is none. What others keep in
// it stays.
func (m *Manager) write(ctx context.Context, secret *corev1.Secret, s state) (*corev1.Secret, error) {
	data, err := s.data()
	if err != nil {
		return nil, err
	}
	secrets := m.o.Kubernetes.CoreV1().Secrets(m.o.Namespace)
	if secret == nil {
		return secrets.Create(ctx, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{
				Name: m.o.Secret, Namespace: m.o.Namespace,
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
