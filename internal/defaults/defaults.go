package defaults

// Apply returns obj as a server has it after decoding: with the defaults of its
// kind. obj is never modified. The result shares every subtree in which nothing
// was missing, and is obj itself if nothing was missing at all. Fields of a
// wrong type are left alone; decoding the object finds them.
//
// known reports whether there is a table for the kind. Kinds without defaults
// (ConfigMap, Role) are known; custom kinds are not.
func Apply(obj map[string]any) (out map[string]any, known bool) {
	apiVersion, _ := obj["apiVersion"].(string)
	kind, _ := obj["kind"].(string)
	rules, known := kinds[typeMeta{apiVersion, kind}]
	out, _ = apply(obj, rules)
	return out, known
}

type typeMeta struct{ apiVersion, kind string }

// kinds has the rules of every kind in the one version in which people write
// it; a kind with defaults in several versions is here once for each version.
var kinds = map[typeMeta][]rule{
	{"v1", "Pod"}:                   pod,
	{"v1", "PodTemplate"}:           {in("template.spec", podSpec...)},
	{"v1", "ReplicationController"}: replicationController,
	{"v1", "Service"}:               service,
	{"v1", "Endpoints"}:             {in("subsets[].ports[]", fill("protocol", "TCP"))},
	{"v1", "Secret"}:                {mergeStringData, fill("type", "Opaque")},
	{"v1", "PersistentVolume"}:      persistentVolume,
	{"v1", "PersistentVolumeClaim"}: persistentVolumeClaim,
	{"v1", "Namespace"}:             namespace,
	{"v1", "Node"}:                  node,
	{"v1", "LimitRange"}:            {in("spec.limits[]", limitsOfContainers, round("max", "min", "default", "defaultRequest", "maxLimitRequestRatio"))},
	{"v1", "ResourceQuota"}:         {in("spec", round("hard")), in("status", round("hard", "used"))},
	{"v1", "ConfigMap"}:             nil,
	{"v1", "Event"}:                 nil,
	{"v1", "ServiceAccount"}:        nil,

	{"apps/v1", "Deployment"}:         deployment,
	{"apps/v1", "StatefulSet"}:        statefulSet,
	{"apps/v1", "DaemonSet"}:          daemonSet,
	{"apps/v1", "ReplicaSet"}:         {in("spec", set("replicas", 1), in("template.spec", podSpec...))},
	{"apps/v1", "ControllerRevision"}: nil,
	{"batch/v1", "Job"}:               job,
	{"batch/v1", "CronJob"}:           cronJob,

	{"autoscaling/v1", "HorizontalPodAutoscaler"}: {in("spec", set("minReplicas", 1)), targetOfV1},
	{"autoscaling/v2", "HorizontalPodAutoscaler"}: horizontalPodAutoscaler,
	{"policy/v1", "PodDisruptionBudget"}:          nil,

	{"networking.k8s.io/v1", "Ingress"}:       nil,
	{"networking.k8s.io/v1", "IngressClass"}:  {in("spec.parameters?", set("scope", "Cluster"))},
	{"networking.k8s.io/v1", "NetworkPolicy"}: networkPolicy,
	{"discovery.k8s.io/v1", "EndpointSlice"}:  {in("ports[]", set("name", ""), set("protocol", "TCP"))},

	{"storage.k8s.io/v1", "StorageClass"}:       {set("reclaimPolicy", "Delete"), set("volumeBindingMode", "Immediate")},
	{"storage.k8s.io/v1", "VolumeAttachment"}:   {in("spec.source.inlineVolumeSpec?", volumeDrivers...)},
	{"storage.k8s.io/v1", "CSIDriver"}:          csiDriver,
	{"storage.k8s.io/v1", "CSINode"}:            nil,
	{"storage.k8s.io/v1", "CSIStorageCapacity"}: nil,

	{"rbac.authorization.k8s.io/v1", "Role"}:               nil,
	{"rbac.authorization.k8s.io/v1", "ClusterRole"}:        nil,
	{"rbac.authorization.k8s.io/v1", "RoleBinding"}:        roleBinding,
	{"rbac.authorization.k8s.io/v1", "ClusterRoleBinding"}: roleBinding,

	{"scheduling.k8s.io/v1", "PriorityClass"}: {set("preemptionPolicy", "PreemptLowerPriority")},
	{"coordination.k8s.io/v1", "Lease"}:       nil,
	{"node.k8s.io/v1", "RuntimeClass"}:        nil,
	{"events.k8s.io/v1", "Event"}:             nil,

	{"admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration"}: {
		in("webhooks[]", append(webhook, set("reinvocationPolicy", "Never"))...),
	},
	{"admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration"}: {in("webhooks[]", webhook...)},
}
