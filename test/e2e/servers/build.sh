#!/bin/sh
# Builds etcd, kube-apiserver and kubectl, and prints the directory that holds
# them. They are kept outside of the source tree, by a hash of what they are
# made of, so nothing is built that is there already. The first time takes about
# five minutes on two cores.
#
# MAPD_E2E_CACHE is where they are kept, by default mapd-e2e in the user's cache.
set -eu
cd "$(dirname "$0")"
: "${GO:=go}"
cache=${MAPD_E2E_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/mapd-e2e}
hash=$({ cat go.mod go.sum build.sh; "$GO" version; } | git hash-object --stdin | cut -c1-16)
dir=$cache/$hash
if [ -d "$dir" ]; then
	echo "$dir"
	exit
fi

mkdir -p "$cache"
tmp=$(mktemp -d "$cache/build.XXXXXX")
trap 'rm -rf "$tmp"' EXIT INT TERM
version=$("$GO" list -m -f '{{.Version}}' k8s.io/kubernetes)
minor=${version#v1.}
minor=${minor%%.*}
v=k8s.io/component-base/version
build() {
	echo "building $1 from $2" >&2
	CGO_ENABLED=0 "$GO" build -trimpath -buildvcs=false \
		-ldflags "-s -w -X $v.gitVersion=$version -X $v.gitMajor=1 -X $v.gitMinor=$minor" -o "$tmp/$1" "$2"
}
build etcd go.etcd.io/etcd/server/v3
build kube-apiserver k8s.io/kubernetes/cmd/kube-apiserver
build kubectl k8s.io/kubernetes/cmd/kubectl

# Whoever is first wins; the directory appears whole or not at all.
mv -T "$tmp" "$dir" 2>/dev/null || [ -d "$dir" ] || mv "$tmp" "$dir"
chmod 755 "$dir"
echo "$dir"
