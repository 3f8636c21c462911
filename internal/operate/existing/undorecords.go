package existing

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/mapd-project/mapd/internal/operate/audit"
	"github.com/mapd-project/mapd/internal/words"
	"github.com/mapd-project/mapd/pkg/tree"
)

// Undo records are Secrets in mapd's namespace, because they contain whole objects, which may be
// Secrets themselves. Each replica creates its own Secrets, so each has one writer. Their text is
// that of an undo file.
const (
	recordsLabel  = "mapd.dev/existing"
	recordsValue  = "undo"
	recordsPrefix = "mapd-existing-"
	recordsKey    = "undo.yaml.gz"
	// lastAnnotation has the time of the last record of a Secret.
	lastAnnotation = "mapd.dev/last"

	// chunkBytes is the size at which a replica starts another Secret. Each record rewrites the
	// Secret, so this bounds the cost of a write for etcd.
	chunkBytes = 32 << 10
	// maxSecret bounds one: Kubernetes takes 1 MiB.
	maxSecret = 900 << 10
	// maxChunks bounds the number of Secrets, and recordsKept is how long they are kept. If there
	// are maxChunks younger ones, no objects are written.
	maxChunks   = 1000
	recordsKept = 7 * 24 * time.Hour
	// maxText bounds the text of a Secret that is read.
	maxText = 64 << 20
	// listChunks is how many are listed at a time.
	listChunks = 20
)

// recordError is the reason why no record can be written, and therefore no object.
type recordError struct{ err error }

func (e *recordError) Error() string { return "undo record: " + e.err.Error() }
func (e *recordError) Unwrap() error { return e.err }

// errFull is the cause of a recordError.
var errFull = fmt.Errorf("there are %d Secrets of undo records, none older than %d days: delete those that you do not need, they have the label %s=%s",
	maxChunks, recordsKept/day, recordsLabel, recordsValue)

// errTooLarge is the error of a record that does not fit into a Secret.
var errTooLarge = errors.New("the undo record of the object is too large")

// records are the undo records that this replica writes, and the ages of those of others.
type records struct {
	client    kubernetes.Interface
	namespace string
	ages      map[string]time.Time // of all Secrets but the current one

	name    string // of the current Secret; "" before the first record
	there   bool   // it exists, as far as is known
	members [][]byte
	size    int
	last    *audit.Undo // of the last member; nil: it was dropped, or there is none
	dirty   bool        // the last member was changed since it was written
}

// openRecords reads all existing records, and calls each with them, beginning with the oldest
// Secret.
func openRecords(ctx context.Context, client kubernetes.Interface, namespace string, each func(*audit.Undo)) (*records, error) {
	r := &records{client: client, namespace: namespace, ages: map[string]time.Time{}}
	err := eachChunk(ctx, client, namespace, func(s *corev1.Secret, all []*audit.Undo) error {
		last, err := time.Parse(time.RFC3339, s.Annotations[lastAnnotation])
		if err != nil {
			last = s.CreationTimestamp.Time
		}
		r.ages[s.Name] = last
		for _, u := range all {
			each(u)
		}
		return nil
	})
	return r, err
}

// eachChunk calls f with all Secrets of undo records, by name, and what they have. One that
// cannot be read counts as empty.
func eachChunk(ctx context.Context, client kubernetes.Interface, namespace string, f func(*corev1.Secret, []*audit.Undo) error) error {
	o := metav1.ListOptions{LabelSelector: recordsLabel + "=" + recordsValue, Limit: listChunks}
	for {
		list, err := client.CoreV1().Secrets(namespace).List(ctx, o)
		if err != nil {
			return err
		}
		for i := range list.Items {
			s := &list.Items[i]
			all, err := unpack(s.Data[recordsKey])
			if err != nil {
				all = nil
			}
			if err := f(s, all); err != nil {
				return err
			}
		}
		if o.Continue = list.Continue; o.Continue == "" {
			return nil
		}
	}
}

func unpack(data []byte) ([]*audit.Undo, error) {
	z, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	return audit.ReadUndo(io.LimitReader(z, maxText))
}

// ReadRecords returns all undo records of an installation, the first write first.
func ReadRecords(ctx context.Context, client kubernetes.Interface, namespace string) (all []*audit.Undo, err error) {
	err = eachChunk(ctx, client, namespace, func(s *corev1.Secret, some []*audit.Undo) error {
		if len(some) == 0 && len(s.Data[recordsKey]) > 0 {
			return fmt.Errorf("secret %s/%s has no undo records that can be read", namespace, s.Name)
		}
		all = append(all, some...)
		return nil
	})
	// Replicas write Secrets of their own. Times of RFC 3339 in UTC sort as texts.
	slices.SortStableFunc(all, func(a, b *audit.Undo) int { return cmp.Compare(a.At, b.At) })
	return all, err
}

// pack returns a record as a member of a gzip file.
func pack(u *audit.Undo) ([]byte, error) {
	text, err := json.Marshal(u)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, _ = z.Write(append(append([]byte("---\n"), text...), '\n')) // a Buffer takes everything
	err = z.Close()
	return b.Bytes(), err
}

// add stores a record. If the last record is about the same version of the object, it is
// replaced: the API server has stored something else than its answer to the dry run.
func (r *records) add(ctx context.Context, u *audit.Undo) error {
	u.At = time.Now().UTC().Format(time.RFC3339)
	member, err := pack(u)
	switch {
	case err != nil:
		return &recordError{err}
	case len(member) > maxSecret:
		return fmt.Errorf("%w: %d bytes, and a Secret takes %d", errTooLarge, len(member), maxSecret)
	}
	if r.last != nil && r.last.Resource == u.Resource && tree.Equal(r.last.Before, u.Before) {
		r.cut()
	}
	if r.name == "" || r.size > 0 && r.size+len(member) > chunkBytes {
		if err := r.begin(ctx); err != nil {
			return err
		}
	}
	r.members, r.size, r.last = append(r.members, member), r.size+len(member), u
	return r.write(ctx)
}

// cut forgets the last record.
func (r *records) cut() {
	at := len(r.members) - 1
	r.size -= len(r.members[at])
	r.members, r.last, r.dirty = r.members[:at], nil, true
}

// drop removes the last record, of an object that was not written.
func (r *records) drop(ctx context.Context) error {
	if r.last == nil {
		return nil
	}
	r.cut()
	return r.write(ctx)
}

// stored marks the last record as confirmed. That is written with the next record, or by flush.
func (r *records) stored() {
	if r.last == nil {
		return
	}
	r.last.Stored = true
	member, err := pack(r.last)
	if err != nil {
		return // it was packed before
	}
	at := len(r.members) - 1
	r.size += len(member) - len(r.members[at])
	r.members[at], r.dirty = member, true
}

// flush writes the Secret of the newest records, if records were added or changed since.
func (r *records) flush(ctx context.Context) error {
	if !r.dirty {
		return nil
	}
	return r.write(ctx)
}

// begin ends the current Secret and names another one.
func (r *records) begin(ctx context.Context) error {
	if err := r.flush(ctx); err != nil {
		return err
	}
	if r.name != "" {
		r.ages[r.name] = time.Now()
	}
	for name, last := range r.ages {
		if time.Since(last) < recordsKept {
			continue
		}
		err := r.client.CoreV1().Secrets(r.namespace).Delete(ctx, name, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return &recordError{err}
		}
		delete(r.ages, name)
	}
	if len(r.ages) >= maxChunks {
		return &recordError{errFull}
	}
	r.name, r.there, r.members, r.size, r.last, r.dirty = recordsPrefix+strconv.FormatInt(time.Now().UnixNano(), 36), false, nil, 0, nil, false
	return nil
}

// write stores the current Secret. It has no other writer, so repeating a write whose answer was
// lost does no harm.
func (r *records) write(ctx context.Context) error {
	s := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Name: r.name, Labels: map[string]string{"app.kubernetes.io/name": "mapd", "app.kubernetes.io/part-of": "mapd", recordsLabel: recordsValue},
			Annotations: map[string]string{lastAnnotation: time.Now().UTC().Format(time.RFC3339)},
		},
		Type: corev1.SecretTypeOpaque,
		Data: map[string][]byte{recordsKey: bytes.Join(r.members, nil)},
	}
	secrets := r.client.CoreV1().Secrets(r.namespace)
	create := func() error {
		_, err := secrets.Create(ctx, s, metav1.CreateOptions{})
		return err
	}
	update := func() error {
		_, err := secrets.Update(ctx, s, metav1.UpdateOptions{})
		return err
	}
	var err error
	if r.there {
		if err = update(); apierrors.IsNotFound(err) {
			err = create()
		}
	} else if err = create(); apierrors.IsAlreadyExists(err) {
		err = update()
	}
	if err != nil {
		return &recordError{err}
	}
	r.there, r.dirty = true, false
	return nil
}

// cause returns the reason why records cannot be written, for a status; "" if the API server
// could not be reached, which may pass.
func cause(err error) string {
	var of *recordError
	var status apierrors.APIStatus
	switch {
	case !errors.As(err, &of):
		return ""
	case errors.Is(err, errFull):
		return errFull.Error()
	case apierrors.IsForbidden(err):
		return "mapd may not write Secrets of its namespace, which have the undo records"
	case errors.As(err, &status) && (apierrors.IsTooManyRequests(err) || apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) || apierrors.IsInternalError(err) || apierrors.IsServiceUnavailable(err)):
		return ""
	case errors.As(err, &status):
		return words.Cut(err.Error(), 300)
	}
	return ""
}
