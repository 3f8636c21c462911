// Package pods makes objects of any size for benchmarks.
package pods

import "fmt"

// New returns a Pod as an API server would send it: defaulted, and with the
// managed fields of the client that made it.
func New(containers, env int) map[string]any {
	spec := podSpec(containers, env)
	spec["enableServiceLinks"] = true
	spec["serviceAccount"], spec["serviceAccountName"] = "default", "default"
	return object("v1", "Pod", spec, map[string]any{"phase": "Pending", "qosClass": "Burstable"})
}

// Deployment returns a Deployment of such Pods.
func Deployment(containers, env int) map[string]any {
	return object("apps/v1", "Deployment", map[string]any{
		"progressDeadlineSeconds": int64(600),
		"replicas":                int64(3),
		"revisionHistoryLimit":    int64(10),
		"selector":                map[string]any{"matchLabels": labels()},
		"strategy": map[string]any{"type": "RollingUpdate",
			"rollingUpdate": map[string]any{"maxSurge": "25%", "maxUnavailable": "25%"}},
		"template": map[string]any{
			"metadata": map[string]any{"labels": labels()},
			"spec":     podSpec(containers, env),
		},
	}, map[string]any{})
}

func labels() map[string]any { return map[string]any{"app": "web", "tier": "front"} }

func object(apiVersion, kind string, spec, status map[string]any) map[string]any {
	return map[string]any{
		"apiVersion": apiVersion,
		"kind":       kind,
		"metadata": map[string]any{
			"name":      "web",
			"namespace": "default",
			"labels":    labels(),
			"managedFields": []any{map[string]any{
				"apiVersion": apiVersion,
				"fieldsType": "FieldsV1",
				"fieldsV1":   map[string]any{"f:metadata": fields(map[string]any{"labels": labels()}), "f:spec": fields(spec)},
				"manager":    "kubectl-create",
				"operation":  "Update",
				"time":       "2026-01-02T03:04:05Z",
			}},
		},
		"spec":   spec,
		"status": status,
	}
}

func podSpec(containers, env int) map[string]any {
	var cs []any
	for i := range containers {
		c := map[string]any{
			"name":  fmt.Sprintf("c%d", i),
			"image": fmt.Sprintf("registry.example.com/team/app-%d:v1.%d", i, i),
			"ports": []any{map[string]any{"containerPort": int64(8080 + i), "name": "http", "protocol": "TCP"}},
			"resources": map[string]any{
				"limits":   map[string]any{"cpu": "500m", "memory": "256Mi"},
				"requests": map[string]any{"cpu": "100m", "memory": "128Mi"},
			},
			"imagePullPolicy":          "IfNotPresent",
			"terminationMessagePath":   "/dev/termination-log",
			"terminationMessagePolicy": "File",
			"volumeMounts":             []any{map[string]any{"mountPath": "/var/run/data", "name": "data"}},
		}
		var vars []any
		for j := range env {
			vars = append(vars, map[string]any{"name": fmt.Sprintf("SETTING_%02d", j),
				"value": fmt.Sprintf("value of setting %d of container %d", j, i)})
		}
		if vars != nil {
			c["env"] = vars
		}
		cs = append(cs, c)
	}
	return map[string]any{
		"containers":                    cs,
		"dnsPolicy":                     "ClusterFirst",
		"restartPolicy":                 "Always",
		"schedulerName":                 "default-scheduler",
		"securityContext":               map[string]any{},
		"terminationGracePeriodSeconds": int64(30),
		"volumes":                       []any{map[string]any{"name": "data", "emptyDir": map[string]any{}}},
	}
}

// fields returns the field set (FieldsV1) of a manager that wrote v.
func fields(v any) any {
	out := map[string]any{}
	switch v := v.(type) {
	case map[string]any:
		for k, x := range v {
			out["f:"+k] = fields(x)
		}
	case []any:
		for _, x := range v {
			m, _ := x.(map[string]any)
			key := "."
			if name, ok := m["name"].(string); ok {
				key = fmt.Sprintf("k:{%q:%q}", "name", name)
			}
			out[key] = fields(x)
		}
	}
	return out
}
