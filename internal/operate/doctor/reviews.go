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

// viaService makes req a request to a path of mapd's Service, through the API server's proxy. The
// API server does not use the client certificate that it may have for webhooks there.
func viaService(req *rest.Request, path string) *rest.Request {
	return req.Namespace(namespace).Resource("services").Name("https:mapd:https").SubResource("proxy").Suffix(path)
}

// asksReviews reports whether mapd can be reached through its Service. It adds a line if the API
// server does not reach mapd.
func (x *examination) asksReviews(check string) bool {
	if x.unreached {
		x.say(Unknown, check, "not asked: the API server does not reach mapd", "")
	}
	return !x.unreached && !x.byURL() // if API servers use a URL, there is no Service
}

// senders checks whether mapd accepts reviews from clients other than API servers.
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
			"give API servers a client certificate and mapd its authority by --client-ca, or a token (--caller-tokens), or name their addresses in the NetworkPolicy (docs/operate/secure.md)")
	case strings.Contains(text, "a client certificate is required"):
		x.say(OK, check, "mapd answers those with a client certificate only (--client-ca)", "")
	case strings.Contains(text, "a token of the API server is required"):
		x.say(OK, check, "mapd answers those with a token of an API server only (--caller-tokens)", "")
	case apierrors.IsForbidden(err), isTimeout(err):
		x.unseen(check, "create", "services/proxy in "+namespace, err)
	default:
		x.say(Warning, check, "not known: the API server's proxy does not reach mapd: "+err.Error(), "")
	}
}

// callers reports which API servers send tokens, if mapd checks tokens and has received reviews.
func (x *examination) callers(metrics []byte) {
	const check = "tokens of API servers"
	valid, not, mode := readCallers(metrics)
	const most = 8
	var say string
	switch len(valid) {
	case 0:
		if len(not) == 0 {
			return
		}
		say = "no server sends a valid one"
	case 1:
		say = valid[0] + " sends tokens"
	default:
		say = words.Some(valid, most) + " send tokens"
	}
	say += " (--caller-tokens=" + mode + ", one replica, since it started)"
	if len(not) == 0 {
		x.say(OK, check, say, "")
		return
	}
	what := "are answered all the same"
	if mode == "require" {
		what = "were refused"
	}
	x.say(Warning, check, say+"; reviews without a valid token from "+words.Some(not, most)+" "+what,
		"find out whether these are API servers, before anything else is required of them; mapd's log has the reasons")
}

// readCallers returns from the metrics the senders of reviews with a valid token, those without
// one, and the mode in which mapd checks tokens.
func readCallers(text []byte) (valid, not []string, mode string) {
	seen := map[string]bool{}
	eachMetric(text, "mapd_caller_tokens_total", func(_ string, labels map[string]string, _ float64) {
		mode = labels["mode"]
		switch server := labels["server"]; {
		case labels["result"] == "valid":
			valid = append(valid, server)
		case !seen[server]: // missing and invalid
			seen[server] = true
			not = append(not, server)
		}
	})
	return valid, not, mode
}

// memory reports how much of the memory for reviews was used, and other facts from the metrics.
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
	x.callers(text)
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

// readMemory reads the metrics about the memory for reviews, which package webhook exports.
func readMemory(text []byte) (peak string, refused int, ok bool) {
	values := map[string]float64{}
	if !eachMetric(text, "mapd_memory_", func(name string, _ map[string]string, v float64) { values[name] += v }) {
		return "", 0, false
	}
	limit, known := values["mapd_memory_budget_bytes"]
	if !known || limit <= 0 {
		return "", 0, false
	}
	const mib = 1 << 20
	most := values["mapd_memory_peak_bytes"]
	return fmt.Sprintf("at most %.0f of %.0f MiB, %.0f %%", most/mib, limit/mib, 100*most/limit), int(values["mapd_memory_refused_total"]), true
}

// eachMetric calls f for each sample whose name begins with a prefix. It returns false if a
// line is too long to be one of mapd's.
func eachMetric(text []byte, prefix string, f func(name string, labels map[string]string, value float64)) bool {
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		sample, value, found := strings.Cut(lines.Text(), " ")
		if !found || !strings.HasPrefix(sample, prefix) {
			continue
		}
		v, err := strconv.ParseFloat(value, 64)
		if err != nil {
			continue
		}
		name, list, _ := strings.Cut(sample, "{")
		labels := map[string]string{}
		for pair := range strings.SplitSeq(strings.TrimSuffix(list, "}"), ",") {
			key, quoted, _ := strings.Cut(pair, "=")
			labels[key] = strings.Trim(quoted, `"`)
		}
		f(name, labels, v)
	}
	return lines.Err() == nil
}
