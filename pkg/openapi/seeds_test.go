package openapi

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/mapd-project/mapd/pkg/tree"
)

func mustJSON(t testing.TB, src string) string {
	t.Helper()
	data, err := yaml.YAMLToJSON([]byte(src))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func mustTree(t testing.TB, src string) map[string]any {
	t.Helper()
	obj, err := tree.Decode([]byte(mustJSON(t, src)))
	if err != nil {
		t.Fatal(err)
	}
	return obj
}

func mustCRDs(t testing.TB, srcs ...string) Source {
	t.Helper()
	var objs []*unstructured.Unstructured
	for _, src := range srcs {
		objs = append(objs, &unstructured.Unstructured{Object: mustTree(t, src)})
	}
	s, err := CRDs(objs...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

var seeds = []string{podSeed, `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop, labels: {app: web}, annotations: {a: b}}
spec:
  replicas: 3
  minReadySeconds: 4
  selector: {matchLabels: {app: web}}
  strategy: {rollingUpdate: {maxSurge: 25%, maxUnavailable: 1}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - {name: c1, image: a, args: [x], env: [{name: E, value: v}], resources: {limits: {cpu: 500m, memory: 1Gi}}}
      - {name: c2, image: b, livenessProbe: {httpGet: {port: 80, path: /}, periodSeconds: 3}}
`, `
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec:
  selector: {app: web}
  ports: [{name: http, port: 80, targetPort: http}, {name: s, port: 443, targetPort: 8443}]
  externalIPs: [1.2.3.4]
`, `
apiVersion: v1
kind: ConfigMap
metadata: {name: conf, namespace: shop, labels: {a: b}}
data: {a: "1", b: "2"}
binaryData: {k: aGVsbG8=}
`, `
apiVersion: v1
kind: Secret
metadata: {name: conf, namespace: shop}
data: {k: aGVsbG8=, l: ""}
`, `
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: web, namespace: shop}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}
  minReplicas: 1
  maxReplicas: 10
  metrics: [{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 80}}}, {type: Pods, pods: {metric: {name: m}, target: {type: AverageValue, averageValue: "0.5"}}}]
  behavior: {scaleDown: {stabilizationWindowSeconds: 0, policies: [{type: Pods, value: 4, periodSeconds: 60}]}}
`, `
apiVersion: apps/v1
kind: ControllerRevision
metadata: {name: web-1, namespace: shop}
data: {spec: {a: 1, l: [1, 2.5]}}
revision: 1
`, `
apiVersion: coordination.k8s.io/v1
kind: Lease
metadata: {name: l, namespace: shop}
spec: {holderIdentity: a, acquireTime: "2024-01-02T03:04:05.123456Z", leaseDurationSeconds: 3}
`, `
apiVersion: batch/v1
kind: CronJob
metadata: {name: c, namespace: shop}
spec: {schedule: "* * * * *", jobTemplate: {spec: {template: {spec: {containers: [{name: a, image: b}], restartPolicy: Never}}}}}
`, `
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: p, namespace: shop}
spec: {minAvailable: 50%, selector: {matchExpressions: [{key: a, operator: In, values: [b]}]}}
`, `
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: s}
spec: {driver: d, nodeName: node, pool: {name: p, generation: 1, resourceSliceCount: 1}, devices: [{name: g, attributes: {x: {int: 5}}, capacity: {mem: {value: 1Gi}}}]}
`, `
apiVersion: ex.io/v1
kind: Widget
metadata: {name: w, namespace: shop, labels: {a: b}}
spec: {size: 3, ports: [{name: a, port: 80, v: x}], tags: [a, b], free: {a: 1}, byName: {x: {num: 1}}}
`}

const podSeed = `
apiVersion: v1
kind: Pod
metadata:
  name: web
  namespace: shop
  creationTimestamp: "2024-01-02T03:04:05Z"
  labels: {app: web, team: x}
  ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: web-1, uid: u, controller: true}]
  managedFields:
  - {manager: kubectl, operation: Apply, apiVersion: v1, time: "2024-01-02T03:04:05Z", fieldsType: FieldsV1, fieldsV1: {"f:spec": {"f:containers": {}}}}
spec:
  nodeSelector: {disk: ssd}
  securityContext: {runAsNonRoot: true}
  tolerations: [{key: a, operator: Exists, tolerationSeconds: 300}]
  topologySpreadConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {app: web}}}]
  initContainers: [{name: init, image: busybox, command: [sh, -c, "true"]}]
  containers:
  - name: app
    image: registry.example/app:1
    env: [{name: A, value: "1"}, {name: B, valueFrom: {secretKeyRef: {name: s, key: k}}}, {name: C, valueFrom: {resourceFieldRef: {resource: limits.cpu, divisor: "0"}}}]
    ports: [{containerPort: 8080, name: http}]
    resources: {limits: {cpu: "1", memory: 512Mi}, requests: {cpu: 500m}}
    readinessProbe: {httpGet: {path: /, port: http}, initialDelaySeconds: 0}
    securityContext: {capabilities: {drop: [ALL]}, runAsUser: 0}
    volumeMounts: [{name: v, mountPath: /v}]
  - {name: proxy, image: envoy, lifecycle: {preStop: {exec: {command: [sleep, "5"]}}}}
  - {name: logs, image: fluent}
  volumes:
  - {name: v, emptyDir: {sizeLimit: 1Gi}}
  - {name: p, projected: {sources: [{serviceAccountToken: {path: t, expirationSeconds: 3600}}]}}
`

const widgetCRD = `
apiVersion: apiextensions.k8s.io/v1
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
    subresources: {status: {}, scale: {specReplicasPath: .spec.size, statusReplicasPath: .status.size}}
    schema:
      openAPIV3Schema:
        type: object
        required: [spec]
        properties:
          spec:
            type: object
            default: {}
            properties:
              size: {type: integer, default: 1, minimum: 0}
              ratio: {type: number}
              mode: {type: string, enum: [a, b], default: a, nullable: true}
              target: {x-kubernetes-int-or-string: true}
              limit: {x-kubernetes-int-or-string: true, anyOf: [{type: integer}, {type: string}], pattern: "^.*$"}
              ports:
                type: array
                x-kubernetes-list-type: map
                x-kubernetes-list-map-keys: [name, port]
                items:
                  type: object
                  required: [name]
                  properties:
                    name: {type: string}
                    port: {type: integer, default: 80}
                    v: {type: string, default: d}
                    nested: {type: object, default: {}, properties: {x: {type: string, default: "y"}}}
              tags: {type: array, x-kubernetes-list-type: set, items: {type: string}}
              plain: {type: array, items: {type: string, default: z}}
              atom: {type: object, x-kubernetes-map-type: atomic, properties: {a: {type: string}, b: {type: string}}}
              byName:
                type: object
                additionalProperties: {type: object, default: {num: 7}, properties: {num: {type: integer, default: 2}, m: {type: string}}}
              open: {type: object, additionalProperties: true}
              free: {type: object, x-kubernetes-preserve-unknown-fields: true, properties: {known: {type: string, default: k}}}
              any: {x-kubernetes-preserve-unknown-fields: true}
              template:
                type: object
                x-kubernetes-embedded-resource: true
                x-kubernetes-preserve-unknown-fields: true
              embedded:
                type: object
                x-kubernetes-embedded-resource: true
                properties:
                  apiVersion: {type: string}
                  kind: {type: string}
                  metadata: {type: object}
                  data: {type: object, additionalProperties: {type: string}}
              when: {type: string, format: date-time}
              blob: {type: string, format: byte}
              choice:
                type: object
                properties: {l: {type: string}, r: {type: string}}
                oneOf: [{required: [l]}, {required: [r]}]
          status:
            type: object
            properties: {size: {type: integer}}
`
