#!/bin/sh
# usage: test/e2e/scale/build.sh PROGRAM
#
# Builds kwok, kube-controller-manager or kube-scheduler, and prints where it is; stages
# prints the directory of KWOK's own stages of nodes and Pods. kwok is built in its own
# module, the other two from what Kubernetes' own go.mod names, in the version of
# test/e2e/servers. They are kept outside of the source tree, by a hash of what they are
# made of, so nothing is built that is there already. The first time takes minutes.
#
# MAPD_E2E_CACHE is where they are kept, by default mapd-e2e in the user's cache.
set -eu
cd "$(dirname "$0")"
: "${GO:=go}"
kwok=v0.8.0
[ $# = 1 ] || {
	sed -n '2s/^# //p' build.sh >&2
	exit 2
}
# download MODULE@VERSION FIELD prints what the Go command says of a module.
download() {
	answer=$("$GO" mod download -json "$1") || {
		echo "$answer" >&2
		return 1
	}
	echo "$answer" | sed -n "s/.*\"$2\": \"\(.*\)\".*/\1/p"
}
if [ "$1" = stages ]; then
	module=$(download "sigs.k8s.io/kwok@$kwok" Dir)
	echo "$module/kustomize/stage"
	exit
fi
kubernetes=$("$GO" -C ../servers list -m -f '{{.Version}}' k8s.io/kubernetes)
cache=${MAPD_E2E_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/mapd-e2e}
hash=$({ cat build.sh; "$GO" version; echo "$kubernetes"; } | git hash-object --stdin | cut -c1-16)
program=$cache/scale-$hash/$1
[ ! -x "$program" ] || {
	echo "$program"
	exit
}

mkdir -p "$(dirname "$program")"
tmp=$(mktemp -d "$cache/build.XXXXXX")
trap 'rm -rf "$tmp"' EXIT
trap 'exit 1' INT TERM
case $1 in
kwok)
	module=$(download "sigs.k8s.io/kwok@$kwok" Dir)
	echo "building kwok $kwok" >&2
	CGO_ENABLED=0 "$GO" -C "$module" build -mod=readonly -buildvcs=false -ldflags "-s -w" -o "$tmp/kwok" ./cmd/kwok
	;;
kube-controller-manager | kube-scheduler)
	published=$(download "k8s.io/kubernetes@$kubernetes" GoMod)
	{
		printf 'module scale\n\ngo 1.26.0\n\nrequire k8s.io/kubernetes %s\n' "$kubernetes"
		sed -n "s|^[[:space:]]*\(k8s.io/[a-z0-9-]*\) => ./staging/.*|replace \1 => \1 v0.${kubernetes#v1.}|p" "$published"
	} >"$tmp/go.mod"
	minor=${kubernetes#v1.}
	v=k8s.io/component-base/version
	echo "building $1 $kubernetes" >&2
	(cd "$tmp" && CGO_ENABLED=0 "$GO" build -mod=mod -buildvcs=false \
		-ldflags "-s -w -X $v.gitVersion=$kubernetes -X $v.gitMajor=1 -X $v.gitMinor=${minor%%.*}" \
		-o "$tmp/$1" "k8s.io/kubernetes/cmd/$1")
	;;
*)
	echo "$1: not one of stages, kwok, kube-controller-manager, kube-scheduler" >&2
	exit 2
	;;
esac
mv "$tmp/$1" "$program" # at once: it appears whole or not at all
echo "$program"
