package defaulting

import (
	"regexp"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/mapd-project/mapd/pkg/quantity"
)

// round rounds the quantities of resource lists up to thousandths, the finest
// that the API keeps (core/v1/defaults.go: SetDefaults_ResourceList).
func round(fields ...string) rule {
	return func(o *object) {
		for _, field := range fields {
			in(field+"?", roundEach)(o)
		}
	}
}

func roundEach(quantities *object) {
	for name, value := range quantities.tree {
		if rounded, ok := roundUp(value); ok {
			quantities.put(name, rounded)
		}
	}
}

// roundUp returns the rounded quantity, and whether it differs. It leaves other
// values as they are.
func roundUp(value any) (string, bool) {
	var text string
	switch v := value.(type) {
	case string:
		text = v
	case float64:
		text = strconv.FormatFloat(v, 'f', -1, 64)
	}
	// Parsing is not free, and only these can be finer than a thousandth.
	if !strings.ContainsAny(text, ".nueE") {
		return "", false
	}
	q, err := quantity.Parse(text)
	if err != nil || q.RoundUp(resource.Milli) {
		return "", false
	}
	return q.String(), true
}

// pullPolicy fills in the pull policy of an image: Always for the tag latest,
// written or implied, and otherwise IfNotPresent. A reference that cannot be
// parsed has no tag, not even an implied one.
func pullPolicy(image, policy string) rule {
	return func(o *object) {
		if latest(o.text(image)) {
			fill(policy, "Always")(o)
		} else {
			fill(policy, "IfNotPresent")(o)
		}
	}
}

// The grammar of image references, as far as it decides about the tag
// (github.com/distribution/reference).
var (
	domain = regexp.MustCompile(`^(` + label + `(\.` + label + `)*|\[[0-9a-fA-F:]+\])(:[0-9]+)?$`)
	remote = regexp.MustCompile(`^(` + part + `(?:/` + part + `)*)(?::([\w][\w.-]{0,127}))?(?:@(.+))?$`)
	hashes = regexp.MustCompile(`^(sha256:[0-9a-f]{64}|sha384:[0-9a-f]{96}|sha512:[0-9a-f]{128})$`)
	bareID = regexp.MustCompile(`^[0-9a-f]{64}$`)
)

const (
	label = `[0-9a-zA-Z](?:[0-9a-zA-Z-]*[0-9a-zA-Z])?`
	part  = `[0-9a-z]+(?:(?:[._]|__|-+)[0-9a-z]+)*`

	maxPath = 255
)

// latest reports whether an image reference is valid and has the tag latest.
func latest(image string) bool {
	if bareID.MatchString(image) {
		return false
	}
	name, hub := image, true
	host, rest, slash := strings.Cut(image, "/")
	if slash && (host == "localhost" || strings.ContainsAny(host, ".:") || strings.ToLower(host) != host) {
		if !domain.MatchString(host) {
			return false
		}
		name, hub = rest, host == "docker.io" || host == "index.docker.io"
	}
	m := remote.FindStringSubmatch(name)
	if m == nil {
		return false
	}
	path, tag, digest := m[1], m[2], m[3]
	if hub && !strings.Contains(path, "/") {
		path = "library/" + path
	}
	if len(path) > maxPath || digest != "" && !hashes.MatchString(digest) {
		return false
	}
	return tag == "latest" || tag == "" && digest == ""
}
