#!/bin/sh
# Builds helm and prints where it is. It is kept outside of the source tree, by a
# hash of what it is made of, so it is not built if it is there already. The first
# time takes about two minutes on two cores.
#
# MAPD_E2E_CACHE is where it is kept, by default mapd-e2e in the user's cache.
set -eu
cd "$(dirname "$0")"
: "${GO:=go}"
cache=${MAPD_E2E_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/mapd-e2e}
hash=$({ cat go.mod go.sum build.sh; "$GO" version; } | git hash-object --stdin | cut -c1-16)
helm=$cache/helm-$hash
if [ -x "$helm" ]; then
	echo "$helm"
	exit
fi

mkdir -p "$cache"
tmp=$(mktemp -d "$cache/build.XXXXXX")
trap 'rm -rf "$tmp"' EXIT
trap 'exit 1' INT TERM
# By default it renders for the Kubernetes of its libraries.
minor=$("$GO" list -m -f '{{.Version}}' k8s.io/client-go | cut -d. -f2)
echo "building helm" >&2
CGO_ENABLED=0 "$GO" build -buildvcs=false \
	-ldflags "-s -w -X helm.sh/helm/v3/pkg/chartutil.k8sVersionMajor=1 -X helm.sh/helm/v3/pkg/chartutil.k8sVersionMinor=$minor" \
	-o "$tmp/helm" helm.sh/helm/v3/cmd/helm
mv "$tmp/helm" "$helm" # at once: it appears whole or not at all
echo "$helm"
