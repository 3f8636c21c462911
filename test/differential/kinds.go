package differential

// kind is one sort of request that scenarios are about.
type kind struct {
	apiVersion, name       string // of the object
	group, version, plural string // of the resource in the request
	root                   *shape
	cluster                bool
	subresources           []string // besides the main resource
	only                   string   // the subresource that always is meant
	connect                bool
	schemaless             bool   // apply configurations never fit
	other                  string // another version of the resource, for rules to name
	definition             map[string]any
}

var (
	integer  = &shape{kind: "int"}
	boolean  = &shape{kind: "bool"}
	double   = &shape{kind: "double"}
	quantity = &shape{kind: "quantity"}
	intstr   = &shape{kind: "intstr"}
	anything = &shape{kind: "any"}
	embedded = &shape{kind: "embedded"}
	encoded  = &shape{kind: "bytes"}
	names    = str("a", "b", "c", "web", "db")
	words    = str("x", "y", "", "Always", "1", "long value / ~", "é\u2028")

	metadata = object(nil,
		field{"labels", dict(words)},
		field{"annotations", dict(words)},
		field{"finalizers", set(str("x.io/a", "x.io/b", "x.io/c", "x.io/d", "x.io/e"))},
		field{"ownerReferences", listMap(object([]string{"apiVersion", "kind", "name", "uid"}, field{"uid", str("u1", "u2")},
			field{"apiVersion", str("v1")}, field{"kind", str("Pod")}, field{"name", names}, field{"controller", boolean}).whole(), "uid")},
	)
	selector = object(nil, field{"matchLabels", dict(words)}).whole()
	keyRef   = object([]string{"key"}, field{"name", names}, field{"key", names}, field{"optional", boolean}).whole()

	container = object([]string{"name"},
		field{"name", names},
		field{"image", words},
		field{"imagePullPolicy", str("Always", "Never", "IfNotPresent")},
		field{"args", list(words)},
		field{"env", listMap(object([]string{"name"}, field{"name", names}, field{"value", words},
			field{"valueFrom", object(nil, field{"secretKeyRef", keyRef}, field{"resourceFieldRef",
				object([]string{"resource"}, field{"resource", words}, field{"divisor", quantity})})}), "name")},
		field{"ports", listMap(object([]string{"containerPort", "protocol"},
			field{"containerPort", integer}, field{"protocol", str("TCP", "UDP")}, field{"name", names}), "containerPort", "protocol")},
		field{"resources", object(nil, field{"limits", dict(quantity)}, field{"requests", dict(quantity)})},
		field{"securityContext", object(nil,
			field{"privileged", boolean}, field{"runAsUser", integer},
			field{"capabilities", object(nil, field{"add", list(words)})})},
		field{"stdin", boolean},
		field{"livenessProbe", object(nil, field{"periodSeconds", integer},
			field{"httpGet", object([]string{"port"}, field{"path", words}, field{"port", intstr})})},
	)

	podSpec = object([]string{"containers"},
		field{"containers", listMap(container, "name")},
		field{"initContainers", listMap(container, "name")},
		field{"ephemeralContainers", listMap(object([]string{"name"}, field{"name", names}, field{"image", words},
			field{"targetContainerName", names}), "name")},
		field{"nodeSelector", dict(words).whole()},
		field{"tolerations", list(object(nil, field{"key", names}, field{"operator", str("Exists", "Equal")},
			field{"tolerationSeconds", integer}))},
		field{"hostNetwork", boolean},
		field{"restartPolicy", str("Always", "Never")},
		field{"priority", integer},
		field{"terminationGracePeriodSeconds", integer},
		field{"imagePullSecrets", listMap(object([]string{"name"}, field{"name", names}).whole(), "name")},
		field{"volumes", listMap(object([]string{"name"}, field{"name", names},
			field{"emptyDir", object(nil, field{"sizeLimit", quantity})},
			field{"configMap", object(nil, field{"name", names}, field{"items", list(object(nil, field{"key", names}, field{"path", words}))})},
		), "name")},
		field{"hostAliases", listMap(object([]string{"ip"}, field{"ip", str("10.0.0.1", "10.0.0.2")},
			field{"hostnames", list(words)}), "ip")},
		field{"topologySpreadConstraints", listMap(object([]string{"maxSkew", "topologyKey", "whenUnsatisfiable"},
			field{"maxSkew", integer}, field{"topologyKey", names}, field{"labelSelector", selector},
			field{"whenUnsatisfiable", str("DoNotSchedule", "ScheduleAnyway")}), "topologyKey", "whenUnsatisfiable")},
	)
	template = object([]string{"spec"}, field{"metadata", metadata}, field{"spec", podSpec})

	claimSpec = object(nil, field{"accessModes", list(words)}, field{"storageClassName", words}, field{"volumeName", words},
		field{"resources", object(nil, field{"requests", dict(quantity)}, field{"limits", dict(quantity)})}, field{"selector", selector})
)

// root is the shape of an object: metadata and what else there is.
func root(must []string, fields ...field) *shape {
	return object(must, append([]field{{"metadata", metadata}}, fields...)...)
}

func spec(fields ...field) field { return field{"spec", object(nil, fields...)} }

var builtinKinds = []kind{
	{apiVersion: "v1", name: "Pod", version: "v1", plural: "pods", subresources: []string{"status", "ephemeralcontainers", "resize"},
		root: root([]string{"spec"}, field{"spec", podSpec}, field{"status", object(nil, field{"phase", words}, field{"startTime", times},
			field{"conditions", listMap(object([]string{"type", "status"}, field{"type", names}, field{"status", words},
				field{"lastTransitionTime", times}), "type")})})},
	{apiVersion: "apps/v1", name: "Deployment", group: "apps", version: "v1", plural: "deployments", subresources: []string{"status"},
		root: root([]string{"spec"}, field{"spec", object([]string{"selector", "template"},
			field{"replicas", integer}, field{"minReadySeconds", integer}, field{"paused", boolean}, field{"selector", selector},
			field{"strategy", object(nil, field{"type", words},
				field{"rollingUpdate", object(nil, field{"maxSurge", intstr}, field{"maxUnavailable", intstr})})},
			field{"template", template})})},
	{apiVersion: "v1", name: "ConfigMap", version: "v1", plural: "configmaps",
		root: root(nil, field{"data", dict(words)}, field{"binaryData", dict(encoded)}, field{"immutable", boolean})},
	{apiVersion: "v1", name: "Service", version: "v1", plural: "services", subresources: []string{"status"},
		root: root([]string{"spec"}, spec(
			field{"ports", listMap(object([]string{"port", "protocol"}, field{"port", integer}, field{"protocol", str("TCP", "UDP")},
				field{"name", names}, field{"targetPort", intstr}), "port", "protocol")},
			field{"selector", dict(words).whole()}, field{"type", words},
			field{"externalIPs", list(words)}, field{"publishNotReadyAddresses", boolean},
			field{"sessionAffinityConfig", object(nil, field{"clientIP", object(nil, field{"timeoutSeconds", integer})})}))},
	{apiVersion: "v1", name: "Secret", version: "v1", plural: "secrets",
		root: root(nil, field{"data", dict(encoded)}, field{"stringData", dict(words)}, field{"type", words}, field{"immutable", boolean})},
	{apiVersion: "v1", name: "Namespace", version: "v1", plural: "namespaces", cluster: true, subresources: []string{"status", "finalize"},
		root: root(nil, spec(field{"finalizers", list(words)}), field{"status", object(nil, field{"phase", words})})},
	{apiVersion: "v1", name: "PersistentVolumeClaim", version: "v1", plural: "persistentvolumeclaims", subresources: []string{"status"},
		root: root([]string{"spec"}, field{"spec", claimSpec}, field{"status", object(nil, field{"capacity", dict(quantity)})})},
	{apiVersion: "v1", name: "Node", version: "v1", plural: "nodes", cluster: true, subresources: []string{"status"},
		root: root(nil, spec(field{"podCIDRs", set(words)}, field{"unschedulable", boolean}, field{"taints", list(object([]string{"key", "effect"},
			field{"key", names}, field{"effect", words}, field{"timeAdded", times}))}), field{"status", object(nil, field{"capacity", dict(quantity)})})},
	{apiVersion: "autoscaling/v2", name: "HorizontalPodAutoscaler", group: "autoscaling", version: "v2", plural: "horizontalpodautoscalers",
		root: root([]string{"spec"}, field{"spec", object([]string{"scaleTargetRef", "maxReplicas"},
			field{"scaleTargetRef", object([]string{"kind", "name"}, field{"kind", words}, field{"name", names}, field{"apiVersion", words})},
			field{"minReplicas", integer}, field{"maxReplicas", integer},
			field{"metrics", list(object([]string{"type"}, field{"type", words}, field{"resource", object([]string{"name", "target"},
				field{"name", names}, field{"target", object([]string{"type"}, field{"type", words}, field{"averageUtilization", integer},
					field{"averageValue", quantity})})}))},
			field{"behavior", object(nil, field{"scaleDown", object(nil, field{"stabilizationWindowSeconds", integer}, field{"tolerance", quantity})})})})},
	{apiVersion: "networking.k8s.io/v1", name: "Ingress", group: "networking.k8s.io", version: "v1", plural: "ingresses",
		root: root([]string{"spec"}, spec(field{"ingressClassName", words},
			field{"tls", list(object(nil, field{"hosts", list(words)}, field{"secretName", names}))},
			field{"defaultBackend", backend},
			field{"rules", list(object(nil, field{"host", words}, field{"http", object([]string{"paths"}, field{"paths", list(
				object([]string{"backend", "pathType"}, field{"path", words}, field{"pathType", words}, field{"backend", backend}))})}))}))},
	{apiVersion: "batch/v1", name: "CronJob", group: "batch", version: "v1", plural: "cronjobs",
		root: root([]string{"spec"}, field{"spec", object([]string{"schedule", "jobTemplate"}, field{"schedule", words}, field{"suspend", boolean},
			field{"jobTemplate", object([]string{"spec"}, field{"metadata", metadata}, field{"spec", object([]string{"template"},
				field{"parallelism", integer}, field{"template", template})})})})},
	{apiVersion: "apps/v1", name: "StatefulSet", group: "apps", version: "v1", plural: "statefulsets",
		root: root([]string{"spec"}, field{"spec", object([]string{"selector", "template", "serviceName"}, field{"serviceName", names},
			field{"replicas", integer}, field{"selector", selector}, field{"template", template},
			field{"volumeClaimTemplates", list(object([]string{"metadata", "spec"}, field{"metadata", metadata}, field{"spec", claimSpec}))})})},
	{apiVersion: "autoscaling/v1", name: "Scale", group: "apps", version: "v1", plural: "deployments", only: "scale", schemaless: true,
		root: root(nil, spec(field{"replicas", integer}), field{"status", object([]string{"replicas"}, field{"replicas", integer}, field{"selector", words})})},
	{apiVersion: "policy/v1", name: "Eviction", version: "v1", plural: "pods", only: "eviction", schemaless: true,
		root: root(nil, field{"deleteOptions", object(nil, field{"gracePeriodSeconds", integer}, field{"dryRun", list(words)})})},
	{apiVersion: "v1", name: "Binding", version: "v1", plural: "pods", only: "binding",
		root: root([]string{"target"}, field{"target", object(nil, field{"kind", words}, field{"name", names})})},
	{apiVersion: "authentication.k8s.io/v1", name: "TokenRequest", version: "v1", plural: "serviceaccounts", only: "token", schemaless: true,
		root: root([]string{"spec"}, field{"spec", object([]string{"audiences"}, field{"audiences", list(words)}, field{"expirationSeconds", integer})})},
	{apiVersion: "v1", name: "PodExecOptions", version: "v1", plural: "pods", only: "exec", schemaless: true, connect: true,
		root: object(nil, field{"container", names}, field{"command", list(words)}, field{"stdin", boolean}, field{"tty", boolean})},
	{apiVersion: "v1", name: "ServiceProxyOptions", version: "v1", plural: "services", only: "proxy", schemaless: true, connect: true,
		root: object(nil, field{"path", words})},
}

var (
	times   = str("2024-01-02T03:04:05Z", "2024-01-02T03:04:05+02:00")
	backend = object(nil, field{"service", object([]string{"name"}, field{"name", names}, field{"port", object(nil,
		field{"number", integer}, field{"name", names})})},
		field{"resource", object([]string{"kind", "name"}, field{"apiGroup", words}, field{"kind", words}, field{"name", names})})
)

// widget is a custom kind with every sort of list and map that there is.
var widget = root([]string{"spec"}, spec(
	field{"lm", listMap(object([]string{"name"}, field{"name", names}, field{"port", integer.orElse(int64(80))}, field{"v", words},
		field{"tags", set(words)}, field{"ios", intstr}, field{"puf", anything}, field{"emb", embedded}, field{"nil", words.null()},
		field{"inner", listMap(object([]string{"name"}, field{"name", names}, field{"d", words.orElse("dd")}), "name")},
		field{"deep", object(nil, field{"e", words.orElse("de")}).orElse(map[string]any{})}), "name", "port")},
	field{"set", set(words)},
	field{"nums", set(integer)},
	field{"atom", list(words)},
	field{"structs", list(object(nil, field{"a", words}, field{"d", words.orElse("dd")})).whole()},
	field{"amap", dict(words).whole()},
	field{"astruct", object(nil, field{"a", words}, field{"b", integer}).whole()},
	field{"m", dict(object(nil, field{"a", words.orElse("da")}, field{"l", list(words)}))},
	field{"mlm", dict(listMap(object([]string{"name"}, field{"name", names}, field{"v", words}), "name"))},
	field{"puf", anything},
	field{"open", object(nil, field{"a", words}).with(func(s *shape) { s.open = true })},
	field{"emb", embedded},
	field{"n", integer},
	field{"f", double},
	field{"s", words},
	field{"b", boolean},
	field{"ios", intstr},
	field{"nil", words.null()},
	field{"nild", words.null().orElse("nd")},
	field{"nill", list(words).null()},
	field{"d", words.orElse("dflt")},
), field{"status", object(nil, field{"n", integer})})

var customKinds = []kind{
	{apiVersion: "ex.io/v1", name: "Widget", group: "ex.io", version: "v1", plural: "widgets", root: widget, subresources: []string{"status"},
		definition: definition("ex.io", "Widget", "widgets", true, map[string]*shape{"v1": widget})},
	{apiVersion: "ex.io/v2", name: "Gadget", group: "ex.io", version: "v2", plural: "gadgets", root: gadget, other: "v1", subresources: []string{"status"},
		definition: definition("ex.io", "Gadget", "gadgets", true, map[string]*shape{"v1": oldGadget, "v2": gadget})},
	{apiVersion: "ex.io/v1", name: "Realm", group: "ex.io", version: "v1", plural: "realms", cluster: true, root: gadget,
		definition: definition("ex.io", "Realm", "realms", false, map[string]*shape{"v1": gadget})},
	{apiVersion: "autoscaling/v1", name: "Scale", group: "ex.io", version: "v1", plural: "widgets", only: "scale", schemaless: true,
		root: root(nil, spec(field{"replicas", integer})), definition: definition("ex.io", "Widget", "widgets", true, map[string]*shape{"v1": widget})},
}

var (
	gadget = root(nil, spec(field{"s", words}, field{"n", integer.orElse(int64(2))}, field{"l", listMap(object([]string{"name"},
		field{"name", names}, field{"v", words.orElse("v2")}), "name")}, field{"m", dict(words)}), field{"extra", words})
	oldGadget = root(nil, spec(field{"s", words.orElse("old")}, field{"n", integer}, field{"l", listMap(object([]string{"name"},
		field{"name", names}, field{"v", words.orElse("v1")}), "name")}, field{"m", dict(words).whole()}), field{"extra", words})
)
