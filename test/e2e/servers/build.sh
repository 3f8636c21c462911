#!/bin/sh
# usage: test/e2e/servers/build.sh [PROGRAM…]
#
# Builds etcd, kube-apiserver and kubectl, or those that are named, and prints the
# directory that holds them. They are kept outside of the source tree, by a hash
# of what they are made of, so nothing is built that is there already. The first
# time takes about five minutes on two cores.
#
# MAPD_E2E_CACHE is where they are kept, by default mapd-e2e in the user's cache.
set -eu
cd "$(dirname "$0")"
: "${GO:=go}"
[ $# -gt 0 ] || set -- etcd kube-apiserver kubectl
cache=${MAPD_E2E_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/mapd-e2e}
hash=$({ cat go.mod go.sum build.sh; "$GO" version; } | git hash-object --stdin | cut -c1-16)
dir=$cache/$hash

mkdir -p "$dir"
tmp=$(mktemp -d "$cache/build.XXXXXX")
trap 'rm -rf "$tmp"' EXIT
trap 'exit 1' INT TERM
version=$("$GO" list -m -f '{{.Version}}' k8s.io/kubernetes)
minor=${version#v1.}
minor=${minor%%.*}
v=k8s.io/component-base/version
for program; do
	[ -x "$dir/$program" ] && continue
	case $program in
	etcd) from=go.etcd.io/etcd/server/v3 ;;
	*) from=k8s.io/kubernetes/cmd/$program ;;
	esac
	echo "building $program from $from" >&2
	CGO_ENABLED=0 "$GO" build -trimpath -buildvcs=false \
		-ldflags "-s -w -X $v.gitVersion=$version -X $v.gitMajor=1 -X $v.gitMinor=$minor" -o "$tmp/$program" "$from"
	mv "$tmp/$program" "$dir/$program" # at once: it appears whole or not at all
done
echo "$dir"
