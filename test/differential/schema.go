package differential

// kind is one kind that scenarios are about: enough of its shape to write
// objects, apply configurations and JSON pointers that mostly fit.
type kind struct {
	apiVersion, name       string
	group, version, plural string
	root                   *shape
	typed                  bool // has a Go type: the oracle runs it typed
}

// shape is the part of a schema that the generator needs.
type shape struct {
	kind   string // struct, map, list, string, int, bool, double, quantity, intstr, any
	fields []field
	elem   *shape
	keys   []string // list maps: their keys
	set    bool
	must   []string // fields that every generated value has
	pool   []string // strings to choose from
}

type field struct {
	name string
	of   *shape
}

func str(pool ...string) *shape { return &shape{kind: "string", pool: pool} }
func list(elem *shape) *shape   { return &shape{kind: "list", elem: elem} }
func dict(elem *shape) *shape   { return &shape{kind: "map", elem: elem} }
func set(elem *shape) *shape    { return &shape{kind: "list", elem: elem, set: true} }

func listMap(elem *shape, keys ...string) *shape {
	return &shape{kind: "list", elem: elem, keys: keys}
}

func object(must []string, fields ...field) *shape {
	return &shape{kind: "struct", fields: fields, must: must}
}

var (
	integer  = &shape{kind: "int"}
	boolean  = &shape{kind: "bool"}
	double   = &shape{kind: "double"}
	quantity = &shape{kind: "quantity"}
	intstr   = &shape{kind: "intstr"}
	anything = &shape{kind: "any"}
	names    = str("a", "b", "c", "web", "db")
	words    = str("x", "y", "", "Always", "1", "long value / ~")

	metadata = object(nil,
		field{"labels", dict(words)},
		field{"annotations", dict(words)},
		field{"finalizers", set(str("x.io/a", "x.io/b"))},
	)

	container = object([]string{"name"},
		field{"name", names},
		field{"image", words},
		field{"imagePullPolicy", str("Always", "Never", "IfNotPresent")},
		field{"args", list(words)},
		field{"env", listMap(object([]string{"name"}, field{"name", names}, field{"value", words}), "name")},
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
		field{"nodeSelector", dict(words)},
		field{"tolerations", list(object(nil, field{"key", names}, field{"operator", str("Exists", "Equal")},
			field{"tolerationSeconds", integer}))},
		field{"hostNetwork", boolean},
		field{"restartPolicy", str("Always", "Never")},
		field{"priority", integer},
		field{"terminationGracePeriodSeconds", integer},
		field{"imagePullSecrets", listMap(object([]string{"name"}, field{"name", names}), "name")},
		field{"volumes", listMap(object([]string{"name"}, field{"name", names},
			field{"emptyDir", object(nil, field{"sizeLimit", quantity})}), "name")},
		field{"hostAliases", listMap(object([]string{"ip"}, field{"ip", str("10.0.0.1", "10.0.0.2")},
			field{"hostnames", list(words)}), "ip")},
		field{"topologySpreadConstraints", listMap(object([]string{"maxSkew", "topologyKey", "whenUnsatisfiable"},
			field{"maxSkew", integer}, field{"topologyKey", names},
			field{"whenUnsatisfiable", str("DoNotSchedule", "ScheduleAnyway")}), "topologyKey", "whenUnsatisfiable")},
	)
)

var kinds = []kind{
	{apiVersion: "v1", name: "Pod", version: "v1", plural: "pods", typed: true,
		root: object([]string{"spec"}, field{"metadata", metadata}, field{"spec", podSpec})},
	{apiVersion: "apps/v1", name: "Deployment", group: "apps", version: "v1", plural: "deployments", typed: true,
		root: object([]string{"spec"}, field{"metadata", metadata}, field{"spec", object([]string{"selector", "template"},
			field{"replicas", integer}, field{"minReadySeconds", integer}, field{"paused", boolean},
			field{"selector", object(nil, field{"matchLabels", dict(words)})},
			field{"strategy", object(nil, field{"type", words},
				field{"rollingUpdate", object(nil, field{"maxSurge", intstr}, field{"maxUnavailable", intstr})})},
			field{"template", object([]string{"spec"}, field{"metadata", metadata}, field{"spec", podSpec})},
		)})},
	{apiVersion: "v1", name: "ConfigMap", version: "v1", plural: "configmaps", typed: true,
		root: object(nil, field{"metadata", metadata}, field{"data", dict(words)}, field{"immutable", boolean})},
	{apiVersion: "v1", name: "Service", version: "v1", plural: "services", typed: true,
		root: object([]string{"spec"}, field{"metadata", metadata}, field{"spec", object(nil,
			field{"ports", listMap(object([]string{"port", "protocol"}, field{"port", integer}, field{"protocol", str("TCP", "UDP")},
				field{"name", names}, field{"targetPort", intstr}), "port", "protocol")},
			field{"selector", dict(words)}, field{"type", words},
			field{"externalIPs", list(words)}, field{"publishNotReadyAddresses", boolean},
			field{"sessionAffinityConfig", object(nil, field{"clientIP", object(nil, field{"timeoutSeconds", integer})})},
		)})},
	{apiVersion: "ex.io/v1", name: "Widget", group: "ex.io", version: "v1", plural: "widgets",
		root: object([]string{"spec"}, field{"metadata", metadata}, field{"spec", widgetSpec})},
}

var widgetSpec = object(nil,
	field{"lm", listMap(object([]string{"name"}, field{"name", names}, field{"port", integer}, field{"v", words},
		field{"tags", set(words)}), "name", "port")},
	field{"set", set(words)},
	field{"nums", set(integer)},
	field{"atom", list(words)},
	field{"amap", dict(words)},
	field{"astruct", object(nil, field{"a", words}, field{"b", integer})},
	field{"m", dict(object(nil, field{"a", words}, field{"l", list(words)}))},
	field{"puf", anything},
	field{"n", integer},
	field{"f", double},
	field{"s", words},
	field{"b", boolean},
	field{"ios", intstr},
)

// widgetCRD is the definition behind the Widget kind: list maps with a default
// key, sets, atomics of all three sorts, a map of structs and an open subtree.
const widgetCRD = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.ex.io}
spec:
  group: ex.io
  scope: Namespaced
  names: {plural: widgets, singular: widget, kind: Widget, listKind: WidgetList}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties:
              lm:
                type: array
                x-kubernetes-list-type: map
                x-kubernetes-list-map-keys: [name, port]
                items:
                  type: object
                  required: [name]
                  properties:
                    name: {type: string}
                    port: {type: integer, default: 80}
                    v: {type: string}
                    tags: {type: array, x-kubernetes-list-type: set, items: {type: string}}
              set: {type: array, x-kubernetes-list-type: set, items: {type: string}}
              nums: {type: array, x-kubernetes-list-type: set, items: {type: integer}}
              atom: {type: array, items: {type: string}}
              amap: {type: object, x-kubernetes-map-type: atomic, additionalProperties: {type: string}}
              astruct:
                type: object
                x-kubernetes-map-type: atomic
                properties: {a: {type: string}, b: {type: integer}}
              m:
                type: object
                additionalProperties:
                  type: object
                  properties:
                    a: {type: string, default: da}
                    l: {type: array, items: {type: string}}
              puf: {type: object, x-kubernetes-preserve-unknown-fields: true}
              n: {type: integer}
              f: {type: number}
              s: {type: string}
              b: {type: boolean}
              ios: {x-kubernetes-int-or-string: true}
              d: {type: string, default: dflt}
`
