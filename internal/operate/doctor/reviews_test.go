package doctor

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// The results are those of a mapd that is asked through an API server.
func TestReviews(t *testing.T) {
	const (
		proxy   = "/api/v1/namespaces/mapd-system/services/https:mapd:https/proxy/"
		status  = `{"kind":"Status","apiVersion":"v1","status":"Failure","message":%q,"reason":%q,"code":%d}`
		metrics = "# HELP x y\nmapd_memory_budget_bytes 2.097152e+08\nmapd_memory_peak_bytes 5.24288e+07\nmapd_memory_refused_total{reason=\"busy\"} %d\nmapd_memory_refused_total{reason=\"body\"} 0\n"
	)
	tests := map[string]struct {
		code          int
		answer        string
		metrics       string
		senders, used Line
		callers       *Line
	}{
		"open": {
			code: 400, answer: fmt.Sprintf(status, "want kind AdmissionReview of apiVersion admission.k8s.io/v1", "BadRequest", 400), metrics: fmt.Sprintf(metrics, 0),
			senders: Line{Mark: Warning, Fact: "mapd answers anybody who reaches its port"},
			used:    Line{Mark: OK, Fact: "at most 50 of 200 MiB, 25 %; none was refused (of one replica, since it started)"},
		},
		"with certificates, under attack": {
			code: 403, answer: fmt.Sprintf(status, "a client certificate is required", "Forbidden", 403), metrics: fmt.Sprintf(metrics, 7),
			senders: Line{Mark: OK, Fact: "mapd answers those with a client certificate only (--client-ca)"},
			used:    Line{Mark: Warning, Fact: "at most 50 of 200 MiB, 25 %; 7 reviews were refused (of one replica, since it started)"},
		},
		"with tokens": {
			code: 401, answer: fmt.Sprintf(status, "a token of the API server is required", "Unauthorized", 401),
			metrics: fmt.Sprintf(metrics, 0) + `mapd_caller_tokens_total{mode="require",result="missing",server="10.0.0.7"} 3
mapd_caller_tokens_total{mode="require",result="valid",server="10.0.0.1"} 12
mapd_caller_tokens_total{mode="require",result="valid",server="10.0.0.2"} 4
`,
			senders: Line{Mark: OK, Fact: "mapd answers those with a token of an API server only (--caller-tokens)"},
			callers: &Line{Mark: Warning, Fact: "10.0.0.1, 10.0.0.2 send tokens (--caller-tokens=require, one replica, since it started); reviews without a valid token from 10.0.0.7 were refused"},
			used:    Line{Mark: OK, Fact: "at most 50 of 200 MiB, 25 %; none was refused (of one replica, since it started)"},
		},
		"tokens are looked at": {
			code: 400, answer: fmt.Sprintf(status, "want kind AdmissionReview of apiVersion admission.k8s.io/v1", "BadRequest", 400),
			metrics: fmt.Sprintf(metrics, 0) + "mapd_caller_tokens_total{mode=\"warn\",result=\"valid\",server=\"10.0.0.1\"} 12\n",
			senders: Line{Mark: Warning, Fact: "mapd answers anybody who reaches its port"},
			callers: &Line{Mark: OK, Fact: "10.0.0.1 sends tokens (--caller-tokens=warn, one replica, since it started)"},
			used:    Line{Mark: OK, Fact: "at most 50 of 200 MiB, 25 %; none was refused (of one replica, since it started)"},
		},
		"not allowed to ask, an older mapd": {
			code: 403, answer: fmt.Sprintf(status, `services "https:mapd:https" is forbidden`, "Forbidden", 403), metrics: "up 1\n",
			senders: Line{Mark: Unknown, Fact: "not known: this user may not create services/proxy in mapd-system"},
			used:    Line{Mark: Warning, Fact: "not known: mapd's metrics do not have it"},
		},
		"no endpoints": {
			code: 503, answer: fmt.Sprintf(status, "no endpoints available", "ServiceUnavailable", 503),
			senders: Line{Mark: Warning, Fact: "not known: the API server's proxy does not reach mapd: the server is currently unable to handle the request (post services https:mapd:https)"},
			used:    Line{Mark: Warning, Fact: "not known: the API server's proxy does not reach mapd: the server is currently unable to handle the request (get services https:mapd:https)"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				switch r.Method + " " + r.URL.Path {
				case "POST " + proxy + "validate":
					w.WriteHeader(tt.code)
					fmt.Fprint(w, tt.answer)
				case "GET " + proxy + "metrics":
					if tt.metrics == "" {
						w.WriteHeader(tt.code)
						fmt.Fprint(w, tt.answer)
						return
					}
					w.Header().Set("Content-Type", "text/plain")
					fmt.Fprint(w, tt.metrics)
				default:
					t.Errorf("%s %s is asked", r.Method, r.URL.Path)
				}
			}))
			defer api.Close()
			x := &examination{Options: Options{Kubernetes: kubernetes.NewForConfigOrDie(&rest.Config{Host: api.URL})}}
			x.senders(t.Context())
			x.memory(t.Context())
			all := []Line{tt.senders, tt.used}
			if tt.callers != nil {
				all = slices.Insert(all, 1, *tt.callers)
			}
			if len(x.lines) != len(all) {
				t.Fatalf("%d results: %+v", len(x.lines), x.lines)
			}
			for i, want := range all {
				if got := x.lines[i]; got.Mark != want.Mark || got.Fact != want.Fact {
					t.Errorf("found %s %q, want %s %q", got.Mark, got.Fact, want.Mark, want.Fact)
				}
			}
		})
	}
}
