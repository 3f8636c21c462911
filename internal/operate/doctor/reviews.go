package doctor

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"github.com/mapd-project/mapd/internal/words"
	"github.com/mapd-project/mapd/pkg/webhook"
)

// viaService makes req a request to a path of mapd's Service. The API server
// proxies it as it does for any user: without the client certificate that it
// may have for webhooks.
func viaService(req *rest.Request, path string) *rest.Request {
	return req.Namespace(namespace).Resource("services").Name("https:mapd:https").SubResource("proxy").Suffix(path)
}

// asksReviews reports whether mapd can be asked through its Service.
func (x *examination) asksReviews(check string) bool {
	if x.unreached {
		x.say(Unknown, check, "not asked: the API server does not reach mapd", "")
	}
	return !x.unreached && !x.byURL() // by a URL there is no Service to ask by
}

// senders reports who may send reviews to mapd.
func (x *examination) senders(ctx context.Context) {
	const check = "senders of reviews"
	if !x.asksReviews(check) {
		return
	}
	// The body is not a review, so mapd decides nothing.
	body, err := viaService(x.Kubernetes.CoreV1().RESTClient().Post(), webhook.ValidatePath).
		SetHeader("Content-Type", "application/json").Body([]byte("{}")).Do(ctx).Raw()
	text := string(body)
	switch {
	case err == nil || strings.Contains(text, "AdmissionReview"):
		x.say(Warning, check, "mapd answers anybody who reaches its port",
			"give API servers a client certificate and mapd its authority by --client-ca, or name their addresses in the NetworkPolicy (docs/operate/secure.md)")
	case strings.Contains(text, "a client certificate is required"):
		x.say(OK, check, "mapd answers those with a client certificate only (--client-ca)", "")
	case apierrors.IsForbidden(err), isTimeout(err):
		x.unseen(check, "create", "services/proxy in "+namespace, err)
	default:
		x.say(Warning, check, "not known: the API server's proxy does not reach mapd: "+err.Error(), "")
	}
}

// memory reports how much of the memory for reviews was used.
func (x *examination) memory(ctx context.Context) {
	const check = "memory of reviews"
	if !x.asksReviews(check) {
		return
	}
	text, err := viaService(x.Kubernetes.CoreV1().RESTClient().Get(), "metrics").Do(ctx).Raw()
	switch {
	case apierrors.IsForbidden(err), isTimeout(err):
		x.unseen(check, "get", "services/proxy in "+namespace, err)
		return
	case err != nil:
		x.say(Warning, check, "not known: the API server's proxy does not reach mapd: "+err.Error(), "")
		return
	}
	peak, refused, ok := readMemory(text)
	if !ok {
		x.say(Warning, check, "not known: mapd's metrics do not have it", "is it of this release?")
		return
	}
	const after = " (of one replica, since it started)"
	if refused > 0 {
		x.say(Warning, check, fmt.Sprintf("%s; %s refused%s", peak, words.Count(refused, "review was", "reviews were"), after),
			"raise the memory limit of mapd's container, or find out who sends them; see mapd_memory_refused_total")
		return
	}
	x.say(OK, check, peak+"; none was refused"+after, "")
}

// readMemory reads the metrics of package webhook about the memory of reviews.
func readMemory(text []byte) (peak string, refused int, ok bool) {
	values := map[string]float64{}
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		name, value, found := strings.Cut(lines.Text(), " ")
		if !found || !strings.HasPrefix(name, "mapd_memory_") {
			continue
		}
		name, _, _ = strings.Cut(name, "{")
		if v, err := strconv.ParseFloat(value, 64); err == nil {
			values[name] += v
		}
	}
	limit, known := values["mapd_memory_budget_bytes"]
	if lines.Err() != nil || !known || limit <= 0 {
		return "", 0, false
	}
	const mib = 1 << 20
	most := values["mapd_memory_peak_bytes"]
	return fmt.Sprintf("at most %.0f of %.0f MiB, %.0f %%", most/mib, limit/mib, 100*most/limit), int(values["mapd_memory_refused_total"]), true
}
