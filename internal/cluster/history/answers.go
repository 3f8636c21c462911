package history

import (
	"net/http"
	"net/url"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mapd-project/mapd/pkg/webhook"
)

// Names of records, below webhook.RecordsPath.
const (
	CountsName  = "counts"
	SamplesName = "samples"
	BlameName   = "blame"
)

// Header says which replica has answered, and since when it has recorded.
type Header struct {
	Replica string    `json:"replica"`
	Since   time.Time `json:"since"`
}

// CountsAnswer is the answer at CountsName.
type CountsAnswer struct {
	Header
	Counts []Counted `json:"counts"`
}

// SamplesAnswer is the answer at SamplesName. The query has the name of a policy.
type SamplesAnswer struct {
	Header
	Samples []*Sample `json:"samples"`
	// More is the number of older samples left out.
	More int `json:"more,omitempty"`
}

// BlameAnswer is the answer at BlameName. The query has group, kind, namespace, name, uid and
// owner, as in Query.
type BlameAnswer struct {
	Header
	Entries []Entry `json:"entries"`
	// More is the number of older entries left out.
	More int `json:"more,omitempty"`
	// Stored is the namespace of the ConfigMaps in which replicas, including former ones, store
	// entries; empty if they store none.
	Stored string `json:"stored,omitempty"`
}

// Get answers requests for records; see webhook.Records.
func (l *Recorder) Get(name string, query url.Values) (any, error) {
	header := Header{l.replica, l.since.UTC()}
	switch name {
	case CountsName:
		return CountsAnswer{header, l.Counts()}, nil
	case SamplesName:
		if query.Get("policy") == "" {
			return nil, &webhook.ReviewError{Code: http.StatusBadRequest, Reason: "the query needs policy"}
		}
		found, more := l.samples.of(query.Get("policy"))
		return SamplesAnswer{header, found, more}, nil
	case BlameName:
		q := Query{
			GroupKind: metav1.GroupKind{Group: query.Get("group"), Kind: query.Get("kind")},
			Namespace: query.Get("namespace"), Name: query.Get("name"), UID: query.Get("uid"), Owner: query.Get("owner"),
		}
		if q.Kind == "" || q.Name == "" {
			return nil, &webhook.ReviewError{Code: http.StatusBadRequest, Reason: "the query needs kind and name"}
		}
		found, more := l.Entries(q)
		return BlameAnswer{header, found, more, l.kept}, nil
	}
	return nil, &webhook.ReviewError{Code: http.StatusNotFound, Reason: "there are no records of that name"}
}
