package defaulting

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

// kinds has the rules of every built-in kind in every version that Kubernetes 1.37 serves.
// test/scheme compares them with the functions of a server.
var kinds = map[typeMeta][]rule{
	{"v1", "Binding"}:               nil,
	{"v1", "ComponentStatus"}:       nil,
	{"v1", "ConfigMap"}:             nil,
	{"v1", "Endpoints"}:             {in("subsets[].ports[]", fill("protocol", "TCP"))},
	{"v1", "Event"}:                 nil,
	{"v1", "LimitRange"}:            {in("spec.limits[]", limitsOfContainers, round("max", "min", "default", "defaultRequest", "maxLimitRequestRatio"))},
	{"v1", "Namespace"}:             namespace,
	{"v1", "Node"}:                  node,
	{"v1", "NodeProxyOptions"}:      nil,
	{"v1", "PersistentVolume"}:      persistentVolume,
	{"v1", "PersistentVolumeClaim"}: persistentVolumeClaim,
	{"v1", "Pod"}:                   pod,
	{"v1", "PodAttachOptions"}:      nil,
	{"v1", "PodExecOptions"}:        nil,
	{"v1", "PodPortForwardOptions"}: nil,
	{"v1", "PodProxyOptions"}:       nil,
	{"v1", "PodTemplate"}:           {in("template.spec", podSpec...)},
	{"v1", "ReplicationController"}: replicationController,
	{"v1", "ResourceQuota"}:         {in("spec", round("hard")), in("status", round("hard", "used"))},
	{"v1", "Secret"}:                {mergeStringData, fill("type", "Opaque")},
	{"v1", "Service"}:               service,
	{"v1", "ServiceAccount"}:        nil,
	{"v1", "ServiceProxyOptions"}:   nil,

	{"admissionregistration.k8s.io/v1", "MutatingAdmissionPolicy"}:        admissionPolicy,
	{"admissionregistration.k8s.io/v1", "MutatingAdmissionPolicyBinding"}: admissionPolicyBinding,
	{"admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration"}: {
		in("webhooks[]", append(webhook, set("reinvocationPolicy", "Never"))...),
	},
	{"admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy"}:            admissionPolicy,
	{"admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicyBinding"}:     admissionPolicyBinding,
	{"admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration"}:       {in("webhooks[]", webhook...)},
	{"admissionregistration.k8s.io/v1beta1", "MutatingAdmissionPolicy"}:         admissionPolicy,
	{"admissionregistration.k8s.io/v1beta1", "MutatingAdmissionPolicyBinding"}:  admissionPolicyBinding,
	{"admissionregistration.k8s.io/v1alpha1", "MutatingAdmissionPolicy"}:        admissionPolicy,
	{"admissionregistration.k8s.io/v1alpha1", "MutatingAdmissionPolicyBinding"}: append(admissionPolicyBinding, in("spec.paramRef?", set("parameterNotFoundAction", "Deny"))),

	{"apiextensions.k8s.io/v1", "CustomResourceDefinition"}: definition,
	{"apiregistration.k8s.io/v1", "APIService"}:             apiService,

	{"apps/v1", "ControllerRevision"}: nil,
	{"apps/v1", "DaemonSet"}:          daemonSet,
	{"apps/v1", "Deployment"}:         deployment,
	{"apps/v1", "ReplicaSet"}:         {in("spec", set("replicas", 1), in("template.spec", podSpec...))},
	{"apps/v1", "StatefulSet"}:        statefulSet,

	{"authentication.k8s.io/v1", "SelfSubjectReview"}:       nil,
	{"authentication.k8s.io/v1", "TokenRequest"}:            {in("spec", set("expirationSeconds", 60*60))},
	{"authentication.k8s.io/v1", "TokenReview"}:             nil,
	{"authorization.k8s.io/v1", "LocalSubjectAccessReview"}: nil,
	{"authorization.k8s.io/v1", "SelfSubjectAccessReview"}:  nil,
	{"authorization.k8s.io/v1", "SelfSubjectRulesReview"}:   nil,
	{"authorization.k8s.io/v1", "SubjectAccessReview"}:      nil,

	{"autoscaling/v1", "HorizontalPodAutoscaler"}: {in("spec", set("minReplicas", 1)), targetOfV1, usageOfV1},
	{"autoscaling/v1", "Scale"}:                   nil,
	{"autoscaling/v2", "HorizontalPodAutoscaler"}: horizontalPodAutoscaler,

	{"batch/v1", "CronJob"}: cronJob,
	{"batch/v1", "Job"}:     job,

	{"certificates.k8s.io/v1", "CertificateSigningRequest"}:  nil,
	{"certificates.k8s.io/v1", "ClusterTrustBundle"}:         nil,
	{"certificates.k8s.io/v1", "PodCertificateRequest"}:      podCertificateRequest,
	{"certificates.k8s.io/v1beta1", "ClusterTrustBundle"}:    nil,
	{"certificates.k8s.io/v1beta1", "PodCertificateRequest"}: podCertificateRequest,

	{"coordination.k8s.io/v1", "Lease"}:                nil,
	{"coordination.k8s.io/v1beta1", "LeaseCandidate"}:  nil,
	{"coordination.k8s.io/v1alpha2", "LeaseCandidate"}: nil,

	{"discovery.k8s.io/v1", "EndpointSlice"}: {in("ports[]", set("name", ""), set("protocol", "TCP"))},
	{"events.k8s.io/v1", "Event"}:            nil,

	{"flowcontrol.apiserver.k8s.io/v1", "FlowSchema"}:                 {in("spec", fill("matchingPrecedence", 1000))},
	{"flowcontrol.apiserver.k8s.io/v1", "PriorityLevelConfiguration"}: priorityLevel,

	{"internal.apiserver.k8s.io/v1alpha1", "StorageVersion"}: nil,
	{"lifecycle.k8s.io/v1alpha1", "Eviction"}:                nil,
	{"lifecycle.k8s.io/v1alpha1", "EvictionRequest"}:         nil,

	{"networking.k8s.io/v1", "IPAddress"}:     nil,
	{"networking.k8s.io/v1", "Ingress"}:       nil,
	{"networking.k8s.io/v1", "IngressClass"}:  {in("spec.parameters?", set("scope", "Cluster"))},
	{"networking.k8s.io/v1", "NetworkPolicy"}: networkPolicy,
	{"networking.k8s.io/v1", "ServiceCIDR"}:   nil,

	{"node.k8s.io/v1", "RuntimeClass"}:   nil,
	{"policy/v1", "Eviction"}:            nil,
	{"policy/v1", "PodDisruptionBudget"}: nil,

	{"rbac.authorization.k8s.io/v1", "ClusterRole"}:        nil,
	{"rbac.authorization.k8s.io/v1", "ClusterRoleBinding"}: roleBinding,
	{"rbac.authorization.k8s.io/v1", "Role"}:               nil,
	{"rbac.authorization.k8s.io/v1", "RoleBinding"}:        roleBinding,

	{"resource.k8s.io/v1", "DeviceClass"}:                     nil,
	{"resource.k8s.io/v1", "DeviceTaintRule"}:                 deviceTaintRule,
	{"resource.k8s.io/v1", "ResourceClaim"}:                   resourceClaim(exactRequest),
	{"resource.k8s.io/v1", "ResourceClaimTemplate"}:           {in("spec", resourceClaim(exactRequest)...)},
	{"resource.k8s.io/v1", "ResourceSlice"}:                   resourceSlice,
	{"resource.k8s.io/v1beta2", "DeviceClass"}:                nil,
	{"resource.k8s.io/v1beta2", "DeviceTaintRule"}:            deviceTaintRule,
	{"resource.k8s.io/v1beta2", "ResourceClaim"}:              resourceClaim(exactRequest),
	{"resource.k8s.io/v1beta2", "ResourceClaimTemplate"}:      {in("spec", resourceClaim(exactRequest)...)},
	{"resource.k8s.io/v1beta2", "ResourceSlice"}:              resourceSlice,
	{"resource.k8s.io/v1beta1", "DeviceClass"}:                nil,
	{"resource.k8s.io/v1beta1", "ResourceClaim"}:              resourceClaim(plainRequest),
	{"resource.k8s.io/v1beta1", "ResourceClaimTemplate"}:      {in("spec", resourceClaim(plainRequest)...)},
	{"resource.k8s.io/v1beta1", "ResourceSlice"}:              {in("spec.devices[]", set("basic", map[string]any{}), in("basic.taints[]", taint))},
	{"resource.k8s.io/v1alpha3", "DeviceTaintRule"}:           deviceTaintRule,
	{"resource.k8s.io/v1alpha3", "ResourcePoolStatusRequest"}: {in("spec", set("limit", 100))},

	{"scheduling.k8s.io/v1", "PriorityClass"}:           {set("preemptionPolicy", "PreemptLowerPriority")},
	{"scheduling.k8s.io/v1beta1", "PodGroup"}:           podGroup,
	{"scheduling.k8s.io/v1beta1", "Workload"}:           nil,
	{"scheduling.k8s.io/v1alpha3", "CompositePodGroup"}: podGroup,
	{"scheduling.k8s.io/v1alpha3", "PodGroup"}:          podGroup,
	{"scheduling.k8s.io/v1alpha3", "Workload"}:          nil,

	{"storage.k8s.io/v1", "CSIDriver"}:             csiDriver,
	{"storage.k8s.io/v1", "CSINode"}:               nil,
	{"storage.k8s.io/v1", "CSIStorageCapacity"}:    nil,
	{"storage.k8s.io/v1", "StorageClass"}:          {set("reclaimPolicy", "Delete"), set("volumeBindingMode", "Immediate")},
	{"storage.k8s.io/v1", "VolumeAttachment"}:      {in("spec.source.inlineVolumeSpec?", append(volumeDrivers, round("capacity"))...)},
	{"storage.k8s.io/v1", "VolumeAttributesClass"}: nil,

	{"storagemigration.k8s.io/v1", "StorageVersionMigration"}:      nil,
	{"storagemigration.k8s.io/v1beta1", "StorageVersionMigration"}: nil,
}
