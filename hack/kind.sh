#!/bin/sh
# Shows mapd in a cluster on this machine, and tests it there: a kind cluster, this
# tree's image, manifests/install.yaml, the policies of examples/, one Pod before
# and after them, and test/e2e. It needs Docker, kind, kubectl, Go and make.
#
#   hack/kind.sh           all of that
#   hack/kind.sh --no-test everything but test/e2e, and leave the examples applied
#
# CLUSTER is the name of the kind cluster, mapd by default. A cluster of that name is
# used if there is one, and stays. Your kubeconfig is not touched.
set -eu
cd "$(dirname "$0")/.."
cluster=${CLUSTER:-mapd}
image=ghcr.io/mapd-project/mapd
tests=yes
case ${1-} in
'') ;;
--no-test) tests= ;;
*)
	sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2
	exit 2
	;;
esac
for tool in docker kind kubectl go make; do
	command -v "$tool" >/dev/null || {
		echo "hack/kind.sh: $tool is needed" >&2
		exit 2
	}
done
# This label is on the namespaces that no example defines.
made=mapd.dev/made-by=kind.sh
say() { printf '\n== %s\n' "$*"; }

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
trap 'exit 1' INT TERM
export KUBECONFIG="$dir/kubeconfig"

say "the cluster $cluster"
if kind get clusters 2>/dev/null | grep -qx -e "$cluster"; then
	kind get kubeconfig --name "$cluster" >"$KUBECONFIG"
	kubectl cluster-info
else
	kind create cluster --name "$cluster" --wait 180s
fi
if kubectl get --raw /apis/admissionregistration.k8s.io/v1 | grep -q '"mutatingadmissionpolicies"'; then
	echo "This API server has MutatingAdmissionPolicy itself; mapd works beside it, on objects of its own group."
fi

say "the image"
make image IMAGE="$image:kind"
# The tag says what is in it, so that a second run replaces the Pods.
id=$(docker image inspect --format '{{.Id}}' "$image:kind")
tag=kind-$(printf %s "${id#sha256:}" | cut -c1-12)
docker tag "$image:kind" "$image:$tag"
kind load docker-image "$image:$tag" --name "$cluster"

say "mapd"
sed "s#image: $image:.*#image: $image:$tag#" manifests/install.yaml | kubectl apply -f -
kubectl -n mapd-system rollout status deployment/mapd --timeout=180s

# Parameters of a kind of the examples' own: what mapd may read, an administrator says.
kubectl apply -f - <<YAML
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: mapd-params-examples
  labels: {mapd.dev/aggregate-to-params: "true"}
rules:
- {apiGroups: [mutations.example.com], resources: ["*"], verbs: [get, list, watch]}
YAML

say "the policies of examples/, with one word changed"
for policy in examples/*/policy.yaml; do
	echo ---
	sed 's#^apiVersion: admissionregistration\.k8s\.io/v1.*#apiVersion: admissionregistration.mapd.dev/v1#' "$policy"
done >"$dir/examples.yaml"
# What is of a kind that the same files define is refused until the API server serves
# it, and what is in a namespace until somebody has made that.
tries=0
until kubectl apply -f "$dir/examples.yaml" >"$dir/applied" 2>"$dir/refused"; do
	tries=$((tries + 1))
	if [ "$tries" -ge 20 ] || grep -qv -e ' not found$' -e '^ensure CRDs are installed first$' -e ': no matches for kind ' -e ': the server could not find the requested resource ' "$dir/refused"; then
		cat "$dir/refused" >&2
		exit 1
	fi
	sed -n 's/.*namespaces "\([^"]*\)" not found$/\1/p' "$dir/refused" | sort -u | while read -r namespace; do
		kubectl get namespace "$namespace" >/dev/null 2>&1 && continue
		kubectl create namespace "$namespace"
		kubectl label namespace "$namespace" "$made" >/dev/null
	done
	sleep 1
done
kubectl wait --for=condition=Ready --timeout=60s map,mapb --all >/dev/null
kubectl get map,mapb

say "a Pod as it is written, and as it is stored"
pod=examples/sidecar-jsonpatch/objects.yaml
names='{.metadata.name}: {.spec.initContainers[*].name} | {.spec.containers[*].name}{"\n"}'
kubectl delete --ignore-not-found --wait -f "$pod" >/dev/null
echo "Pod: init containers | containers"
kubectl create --dry-run=client -f "$pod" -o "jsonpath=$names"
# API servers take a moment to see a change of a webhook configuration.
tries=0
until kubectl create --dry-run=server -f "$pod" -o "jsonpath=$names" | grep -q mesh-proxy; do
	tries=$((tries + 1))
	if [ "$tries" -ge 30 ]; then
		echo "hack/kind.sh: the policy sidecar-jsonpatch does nothing" >&2
		exit 1
	fi
	sleep 1
done
kubectl apply -f "$pod" >/dev/null
echo "stored:"
kubectl get -f "$pod" -o "jsonpath={range .items[*]}$names{end}"

if [ -n "$tests" ]; then
	say "test/e2e"
	# What the examples do is not what the tests expect.
	kubectl delete --ignore-not-found -f "$dir/examples.yaml" >/dev/null
	kubectl delete namespace -l "$made" >/dev/null
	kubectl delete clusterrole mapd-params-examples >/dev/null
	make e2e KUBECONFIG="$KUBECONFIG"
fi

say "done"
echo "kind export kubeconfig --name $cluster    # to look around with kubectl"
echo "kind delete cluster --name $cluster"
