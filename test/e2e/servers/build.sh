#!/bin/sh
# usage: test/e2e/servers/build.sh [PROGRAM…]
#
# Builds etcd, kube-apiserver and kubectl, or those that are named, and prints the
# directory that holds them. They are kept outside of the source tree, by a hash
# of what they are made of, so nothing is built that is there already. The first
# time takes about five minutes on two cores.
#
# MAPD_E2E_CACHE is where they are kept, by default mapd-e2e in the user's cache.
# MAPD_E2E_KUBERNETES is another release of kube-apiserver, such as 1.34.9. It is
# built from what its own go.mod names, with the Go that it asks for; etcd and
# kubectl stay those of ours.
set -eu
cd "$(dirname "$0")"
here=$PWD
: "${GO:=go}"
: "${MAPD_E2E_KUBERNETES:=}"
[ $# -gt 0 ] || set -- etcd kube-apiserver kubectl
cache=${MAPD_E2E_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/mapd-e2e}
hash=$({ cat go.mod go.sum build.sh; "$GO" version; echo "$MAPD_E2E_KUBERNETES"; } | git hash-object --stdin | cut -c1-16)
dir=$cache/$hash

mkdir -p "$dir"
tmp=$(mktemp -d "$cache/build.XXXXXX")
trap 'rm -rf "$tmp"' EXIT
trap 'exit 1' INT TERM
if [ -n "$MAPD_E2E_KUBERNETES" ]; then
	version=v$MAPD_E2E_KUBERNETES
	export GOTOOLCHAIN=auto # a release may need a newer Go than this one
	"$GO" mod download -json "k8s.io/kubernetes@$version" >"$tmp/download" || {
		cat "$tmp/download" >&2
		exit 1
	}
	published=$(sed -n 's/.*"GoMod": "\(.*\)".*/\1/p' "$tmp/download")
	{
		printf 'module servers\n\n%s\n\nrequire k8s.io/kubernetes %s\n' "$(grep '^go ' "$published")" "$version"
		sed -n "s|^[[:space:]]*\(k8s.io/[a-z0-9-]*\) => ./staging/.*|replace \1 => \1 v0.${version#v1.}|p" "$published"
	} >"$tmp/go.mod"
	cd "$tmp"
	export GOFLAGS="${GOFLAGS:-} -mod=mod"
else
	version=$("$GO" list -m -f '{{.Version}}' k8s.io/kubernetes)
fi
minor=${version#v1.}
minor=${minor%%.*}
v=k8s.io/component-base/version
for program; do
	[ -x "$dir/$program" ] && continue
	case $program in
	etcd) from=go.etcd.io/etcd/server/v3 ;;
	*) from=k8s.io/kubernetes/cmd/$program ;;
	esac
	if [ -n "$MAPD_E2E_KUBERNETES" ] && [ "$program" != kube-apiserver ]; then
		ours=$(MAPD_E2E_KUBERNETES='' GOFLAGS='' "$here/build.sh" "$program")
		ln -sf "$ours/$program" "$dir/$program"
		continue
	fi
	echo "building $program $version from $from" >&2
	CGO_ENABLED=0 "$GO" build -buildvcs=false \
		-ldflags "-s -w -X $v.gitVersion=$version -X $v.gitMajor=1 -X $v.gitMinor=$minor" -o "$tmp/$program" "$from"
	mv "$tmp/$program" "$dir/$program" # at once: it appears whole or not at all
done
echo "$dir"
