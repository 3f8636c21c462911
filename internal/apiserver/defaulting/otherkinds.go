package defaulting

import (
	"encoding/base64"
	"strings"

	"github.com/mapd-project/mapd/pkg/api"
)

var service = []rule{
	in("spec",
		fill("type", "ClusterIP"),
		fill("sessionAffinity", "None"),
		affinityTimeout,
		in("ports[]", fill("protocol", "TCP"), fillFrom("targetPort", "port")),
		trafficPolicies,
	),
	func(o *object) {
		if o.object("spec")["type"] == "LoadBalancer" {
			in("status.loadBalancer.ingress[]", addressMode)(o)
		}
	},
}

func affinityTimeout(o *object) {
	switch o.text("sessionAffinity") {
	case "None":
		o.drop("sessionAffinityConfig")
	case "ClientIP":
		in("sessionAffinityConfig.clientIP", set("timeoutSeconds", 3*60*60))(o)
	}
}

// trafficPolicies sets the external policy of Services that can be reached from
// outside, and the internal one of all but ExternalName.
func trafficPolicies(o *object) {
	kind := o.text("type")
	if kind != "ClusterIP" && kind != "NodePort" && kind != "LoadBalancer" {
		return
	}
	set("internalTrafficPolicy", "Cluster")(o)
	if kind != "ClusterIP" || len(o.list("externalIPs")) > 0 {
		fill("externalTrafficPolicy", "Cluster")(o)
	}
	if kind == "LoadBalancer" {
		set("allocateLoadBalancerNodePorts", true)(o)
	}
}

func addressMode(o *object) {
	if o.text("ip") != "" {
		set("ipMode", "VIP")(o)
	}
}

// mergeStringData moves stringData, which is for writing only, into data. The
// conversion to the internal version does that, over what is there, so
// admission never sees stringData (core/v1/conversion.go:
// Convert_v1_Secret_To_core_Secret).
func mergeStringData(o *object) {
	if o.foreign("data") || o.foreign("stringData") {
		return
	}
	data := object{tree: o.object("data")}
	for key, value := range o.object("stringData") {
		text, ok := value.(string)
		if !ok && value != nil {
			return
		}
		data.put(key, base64.StdEncoding.EncodeToString([]byte(text)))
	}
	if data.copied {
		o.put("data", data.tree)
	}
	o.drop("stringData")
}

var persistentVolume = []rule{
	in("spec", append(volumeDrivers,
		fill("persistentVolumeReclaimPolicy", "Retain"), set("volumeMode", "Filesystem"), round("capacity"))...),
	in("status", fill("phase", "Pending")),
}

var persistentVolumeClaim = []rule{
	in("spec", claimSpec...),
	in("status", fill("phase", "Pending"), round("capacity", "allocatedResources")),
}

var namespace = []rule{
	in("metadata", func(o *object) {
		// With generateName there is no name yet to copy.
		if name := o.text("name"); name != "" {
			in("labels", always("kubernetes.io/metadata.name", name))(o)
		}
	}),
	in("status", fill("phase", "Active")),
}

var node = []rule{
	in("spec", inStep("podCIDR", "podCIDRs", "")),
	in("status",
		func(o *object) {
			if capacity := o.object("capacity"); capacity != nil {
				set("allocatable", capacity)(o)
			}
		},
		round("capacity", "allocatable"),
	),
}

// limitsOfContainers fills in a LimitRange: a maximum is the default of the
// default limit; the default limit, or else the minimum, is the default
// request.
func limitsOfContainers(o *object) {
	if o.text("type") == "Container" {
		complete(o, "default", o.object("max"))
		complete(o, "defaultRequest", o.object("default"))
		complete(o, "defaultRequest", o.object("min"))
	}
}

var networkPolicy = []rule{in("spec",
	func(o *object) {
		types := []any{"Ingress"}
		if len(o.list("egress")) > 0 {
			types = append(types, "Egress")
		}
		fill("policyTypes", types)(o)
	},
	in("ingress[].ports[]", set("protocol", "TCP")),
	in("egress[].ports[]", set("protocol", "TCP")),
)}

var csiDriver = []rule{in("spec",
	set("attachRequired", true), set("podInfoOnMount", false),
	set("storageCapacity", false), set("requiresRepublish", false),
	set("fsGroupPolicy", "ReadWriteOnceWithFSType"), fill("volumeLifecycleModes", []any{"Persistent"}),
	set("seLinuxMount", false), set("preventPodSchedulingIfMissing", false),
)}

var roleBinding = []rule{
	in("roleRef", fill("apiGroup", api.RBACGroup)),
	in("subjects[]", func(o *object) {
		if kind := o.text("kind"); kind == "User" || kind == "Group" {
			fill("apiGroup", api.RBACGroup)(o)
		}
	}),
}

var webhook = []rule{
	set("failurePolicy", "Fail"), set("matchPolicy", "Equivalent"), set("timeoutSeconds", 10),
	set("namespaceSelector", map[string]any{}), set("objectSelector", map[string]any{}),
	in("clientConfig.service?", set("port", 443)),
	in("rules[]", set("scope", "*")),
}

// matchResources are the match criteria of policies and their bindings.
var matchResources = []rule{
	set("matchPolicy", "Equivalent"), set("namespaceSelector", map[string]any{}), set("objectSelector", map[string]any{}),
	in("resourceRules[]", set("scope", "*")), in("excludeResourceRules[]", set("scope", "*")),
}

var (
	admissionPolicy        = []rule{in("spec", set("failurePolicy", "Fail"), in("matchConstraints?", matchResources...))}
	admissionPolicyBinding = []rule{in("spec.matchResources?", matchResources...)}
)

var definition = []rule{
	in("spec",
		in("names", func(o *object) {
			if kind := o.text("kind"); kind != "" {
				fill("singular", strings.ToLower(kind))(o)
				fill("listKind", kind+"List")(o)
			}
		}),
		set("conversion", map[string]any{"strategy": "None"}),
		in("conversion?", func(o *object) {
			// The internal version has the fields of webhook, and no webhook.
			if w := o.object("webhook"); w["clientConfig"] == nil && w["conversionReviewVersions"] == nil {
				o.drop("webhook")
			}
		}),
		in("conversion?.webhook?.clientConfig?.service?", set("port", 443)),
	),
	func(o *object) {
		in("spec.versions[]", func(version *object) {
			if version.tree["storage"] == true {
				in("status", fill("storedVersions", []any{version.text("name")}))(o)
			}
		})(o)
	},
}

var priorityLevel = []rule{
	in("spec.limited?",
		set("nominalConcurrencyShares", 30), set("lendablePercent", 0),
		in("limitResponse.queuing?", fill("handSize", 8), fill("queues", 64), fill("queueLengthLimit", 50)),
	),
	in("spec.exempt?", set("nominalConcurrencyShares", 0), set("lendablePercent", 0)),
}

// apiService has what the Go type of an APIService adds and leaves out as well, because
// openapi.Kind has no Go type for this one kind.
var apiService = []rule{
	in("spec",
		set("groupPriorityMinimum", 0), set("versionPriority", 0),
		dropEmpty("caBundle", "group", "insecureSkipTLSVerify", "version"),
		func(o *object) {
			if o.tree["service"] == nil {
				o.drop("service")
			}
		},
		in("service?", set("port", 443), dropEmpty("name", "namespace")),
	),
	set("status", map[string]any{}),
	in("status", dropEmpty("conditions"), in("conditions[]", set("type", ""), set("status", ""), dropEmpty("reason", "message"),
		func(o *object) {
			if _, ok := o.tree["lastTransitionTime"]; !ok {
				o.put("lastTransitionTime", nil)
			}
		},
	)),
}

// dropEmpty removes fields that are empty, as the encoding of a Go type does.
func dropEmpty(fields ...string) rule {
	return func(o *object) {
		for _, field := range fields {
			if empty(o.tree[field]) || o.tree[field] == false {
				o.drop(field)
			}
		}
	}
}

var podGroup = []rule{in("spec", set("disruptionMode", map[string]any{"single": map[string]any{}}))}

var podCertificateRequest = []rule{in("spec", set("maxExpirationSeconds", 24*60*60))}
