package defaulting

import (
	"encoding/json"
	"fmt"
	"math"
)

var replicationController = []rule{
	func(o *object) {
		labels := labelsOfTemplate(o)
		in("spec", labelsIfNone("selector", labels))(o)
		in("metadata", labelsIfNone("labels", labels))(o)
	},
	in("spec", set("replicas", 1), in("template?.spec", podSpec...)),
}

func labelsOfTemplate(o *object) (labels map[string]any) {
	in("spec.template.metadata", func(o *object) { labels = o.object("labels") })(o)
	return labels
}

func labelsIfNone(field string, labels map[string]any) rule {
	return func(o *object) {
		if len(labels) > 0 {
			fill(field, labels)(o)
		}
	}
}

var deployment = []rule{in("spec",
	set("replicas", 1),
	in("strategy", rollingUpdate(map[string]any{"maxUnavailable": "25%", "maxSurge": "25%"}, "maxUnavailable", "maxSurge")),
	set("revisionHistoryLimit", 10),
	set("progressDeadlineSeconds", 600),
	in("template.spec", podSpec...),
)}

// rollingUpdate makes a rolling update the default strategy, and gives it parameters.
// Of another strategy they are wrong, but a server still fills those in that are no
// pointers in its internal version.
func rollingUpdate(parameters map[string]any, values ...string) rule {
	return func(o *object) {
		fill("type", "RollingUpdate")(o)
		if o.text("type") == "RollingUpdate" {
			for field, value := range parameters {
				in("rollingUpdate", set(field, value))(o)
			}
			return
		}
		for _, field := range values {
			in("rollingUpdate?", set(field, 0))(o)
		}
	}
}

var daemonSet = []rule{
	// The internal type has a field for what v1 has as an annotation.
	in("metadata.annotations", set("deprecated.daemonset.template.generation", "0")),
	in("spec",
		in("updateStrategy", rollingUpdate(map[string]any{"maxUnavailable": 1, "maxSurge": 0}, "maxUnavailable", "maxSurge")),
		set("revisionHistoryLimit", 10),
		in("template.spec", podSpec...),
	),
}

var statefulSet = []rule{in("spec",
	set("replicas", 1),
	fill("podManagementPolicy", "OrderedReady"),
	in("updateStrategy", func(o *object) {
		// Unlike elsewhere, a strategy that is named without parameters gets
		// none.
		if o.text("type") == "" || o.tree["rollingUpdate"] != nil {
			rollingUpdate(map[string]any{"partition": 0, "maxUnavailable": 1}, "partition")(o)
		}
	}),
	in("persistentVolumeClaimRetentionPolicy", fill("whenDeleted", "Retain"), fill("whenScaled", "Retain")),
	set("revisionHistoryLimit", 10),
	in("template.spec", podSpec...),
	in("volumeClaimTemplates[]", append(persistentVolumeClaim,
		always("apiVersion", "v1"), always("kind", "PersistentVolumeClaim"))...),
)}

var job = []rule{
	func(o *object) { in("metadata", labelsIfNone("labels", labelsOfTemplate(o)))(o) },
	in("spec",
		func(o *object) {
			// A work queue has a parallelism and no completions.
			if o.tree["parallelism"] == nil {
				set("completions", 1)(o)
			}
			if o.tree["backoffLimitPerIndex"] != nil {
				set("backoffLimit", math.MaxInt32)(o)
			}
			if o.tree["podFailurePolicy"] != nil {
				set("podReplacementPolicy", "Failed")(o)
			}
		},
		set("parallelism", 1), set("backoffLimit", 6), set("podReplacementPolicy", "TerminatingOrFailed"),
		set("completionMode", "NonIndexed"), set("suspend", false), set("manualSelector", false),
	),
	in("spec", jobTemplate...),
}

// jobTemplate has the defaults of a CronJob's template.
var jobTemplate = []rule{
	in("podFailurePolicy?.rules[].onPodConditions[]", fill("status", "True")),
	in("template.spec", podSpec...),
}

var cronJob = []rule{in("spec",
	fill("concurrencyPolicy", "Allow"), set("suspend", false),
	set("successfulJobsHistoryLimit", 3), set("failedJobsHistoryLimit", 1),
	in("jobTemplate.spec", jobTemplate...),
)}

// targetOfV1 sets the CPU target of an autoscaling/v1 autoscaler, as the
// conversion does unless there are other metrics. In v1, other metrics are in
// an annotation.
func targetOfV1(o *object) {
	var others []any
	in("metadata.annotations?", func(o *object) {
		if json.Unmarshal([]byte(o.text("autoscaling.alpha.kubernetes.io/metrics")), &others) != nil {
			others = nil
		}
	})(o)
	if len(others) == 0 {
		in("spec", set("targetCPUUtilizationPercentage", 80))(o)
	}
}

// usageOfV1 writes the current usage into the annotation for all metrics, which the
// conversion does unless that has metrics already.
func usageOfV1(o *object) {
	usage := o.object("status")["currentCPUUtilizationPercentage"]
	if usage == nil {
		return
	}
	in("metadata.annotations", func(o *object) {
		const field = "autoscaling.alpha.kubernetes.io/current-metrics"
		var there []any
		if json.Unmarshal([]byte(o.text(field)), &there) != nil {
			o.put(field, fmt.Sprintf(`[{"type":"Resource","resource":{"name":"cpu","currentAverageUtilization":%v,"currentAverageValue":"0"}}]`, usage))
		}
	})(o)
}

var horizontalPodAutoscaler = []rule{in("spec",
	set("minReplicas", 1),
	fill("metrics", []any{map[string]any{
		"type": "Resource",
		"resource": map[string]any{
			"name":   "cpu",
			"target": map[string]any{"type": "Utilization", "averageUtilization": int64(80)},
		},
	}}),
	in("behavior?.scaleUp",
		set("stabilizationWindowSeconds", 0), set("selectPolicy", "Max"),
		set("policies", []any{scaling("Pods", 4), scaling("Percent", 100)}),
	),
	// How long to wait before scaling down is an option of the controller.
	in("behavior?.scaleDown", set("selectPolicy", "Max"), set("policies", []any{scaling("Percent", 100)})),
)}

func scaling(kind string, value int64) map[string]any {
	return map[string]any{"type": kind, "value": value, "periodSeconds": int64(15)}
}
