package defaulting

// pod is a Pod on its own. Some defaults are not those of a pod template, so
// that a new one does not change every stored Deployment (core/v1/defaults.go:
// SetDefaults_Pod).
var pod = []rule{
	in("spec",
		func(o *object) {
			if n, ok := o.tree["terminationGracePeriodSeconds"].(int64); ok && n < 0 {
				o.put("terminationGracePeriodSeconds", int64(1))
			}
		},
		in("containers[].resources", requestsFromLimits),
		in("initContainers[].resources", requestsFromLimits),
		set("enableServiceLinks", true),
		hostPorts,
	),
	in("spec", podSpec...),
	in("status",
		inStep("podIP", "podIPs", "ip"),
		round("allocatedResources"),
		in("resources?", round("limits", "requests")),
		in("initContainerStatuses[]", containerStatus...),
		in("containerStatuses[]", containerStatus...),
		in("ephemeralContainerStatuses[]", containerStatus...),
	),
}

func requestsFromLimits(o *object) { complete(o, "requests", o.object("limits")) }

// hostPorts copies container ports to host ports if the Pod uses the host's
// network.
func hostPorts(o *object) {
	if o.tree["hostNetwork"] == true {
		in("containers[].ports[]", fillFrom("hostPort", "containerPort"))(o)
		in("initContainers[].ports[]", fillFrom("hostPort", "containerPort"))(o)
	}
}

// fillFrom gives an empty field the value of another.
func fillFrom(field, other string) rule {
	return func(o *object) {
		if value := o.tree[other]; !empty(value) {
			fill(field, value)(o)
		}
	}
}

// podSpec is the part that Pods and pod templates share.
var podSpec = []rule{
	// Two spellings of one field; serviceAccountName wins.
	fillFrom("serviceAccountName", "serviceAccount"),
	func(o *object) {
		if name := o.text("serviceAccountName"); name != "" {
			always("serviceAccount", name)(o)
		}
	},
	fill("dnsPolicy", "ClusterFirst"),
	fill("restartPolicy", "Always"),
	set("securityContext", map[string]any{}),
	set("terminationGracePeriodSeconds", 30),
	fill("schedulerName", "default-scheduler"),
	round("overhead"),
	in("resources?", round("limits", "requests")),
	in("volumes[]", volume...),
	in("initContainers[]", container...),
	in("containers[]", container...),
	in("ephemeralContainers[]", container...),
}

var container = []rule{
	pullPolicy("image", "imagePullPolicy"),
	fill("terminationMessagePath", "/dev/termination-log"),
	fill("terminationMessagePolicy", "File"),
	in("ports[]", fill("protocol", "TCP")),
	in("env[].valueFrom?", in("fieldRef?", fieldRef), in("fileKeyRef?", set("optional", false))),
	in("resources", round("limits", "requests")),
	in("livenessProbe?", probe...),
	in("readinessProbe?", probe...),
	in("startupProbe?", probe...),
	in("lifecycle?.postStart?.httpGet?", httpGet...),
	in("lifecycle?.preStop?.httpGet?", httpGet...),
}

var containerStatus = []rule{round("allocatedResources"), in("resources?", round("limits", "requests"))}

var fieldRef = fill("apiVersion", "v1")

var probe = []rule{
	fill("timeoutSeconds", 1), fill("periodSeconds", 10), fill("successThreshold", 1), fill("failureThreshold", 3),
	in("httpGet?", httpGet...),
	in("grpc?", set("service", "")),
}

var httpGet = []rule{fill("path", "/"), fill("scheme", "HTTP")}

var volume = append([]rule{
	emptyDirIfNone,
	in("image?", pullPolicy("reference", "pullPolicy")),
	in("secret?", set("defaultMode", 0o644)),
	in("configMap?", set("defaultMode", 0o644)),
	in("downwardAPI?", set("defaultMode", 0o644), in("items[].fieldRef?", fieldRef)),
	in("projected?", set("defaultMode", 0o644)),
	in("projected?.sources[].downwardAPI?.items[].fieldRef?", fieldRef),
	in("projected?.sources[].serviceAccountToken?", set("expirationSeconds", 3600)),
	in("ephemeral?.volumeClaimTemplate?.spec", claimSpec...),
}, volumeDrivers...)

// emptyDirIfNone makes a volume without a source an empty directory.
func emptyDirIfNone(o *object) {
	for field, value := range o.tree {
		if field != "name" && value != nil {
			return
		}
	}
	o.put("emptyDir", map[string]any{})
}

// volumeDrivers are the sources that volumes of a Pod and PersistentVolumes
// have in common.
var volumeDrivers = []rule{
	in("hostPath?", set("type", "")),
	in("iscsi?", fill("iscsiInterface", "default")),
	in("rbd?", fill("pool", "rbd"), fill("user", "admin"), fill("keyring", "/etc/ceph/keyring")),
	in("azureDisk?", set("cachingMode", "ReadWrite"), set("fsType", "ext4"), set("readOnly", false), set("kind", "Shared")),
	in("scaleIO?", fill("storageMode", "ThinProvisioned"), fill("fsType", "xfs")),
}

var claimSpec = []rule{set("volumeMode", "Filesystem"), in("resources", round("limits", "requests"))}
