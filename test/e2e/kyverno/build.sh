#!/bin/sh
# usage: test/e2e/kyverno/build.sh [PROGRAM]
#
# Prints the directory of Kyverno's module, at the version that test/kyverno/engine
# has; with kyverno, builds its admission controller and prints where it is. The
# program is kept outside of the source tree, by a hash of what it is made of, so it
# is not built if it is there already. The first time takes about twenty minutes on
# two cores.
#
# MAPD_E2E_CACHE is where it is kept, by default mapd-e2e in the user's cache.
set -eu
cd "$(dirname "$0")"
: "${GO:=go}"
engine=../../kyverno/engine
answer=$("$GO" -C "$engine" mod download -json github.com/kyverno/kyverno) || {
	echo "$answer" >&2
	exit 1
}
module=$(echo "$answer" | sed -n 's/.*"Dir": "\(.*\)".*/\1/p')
[ "${1:-}" = kyverno ] || {
	echo "$module"
	exit
}

version=$(echo "$answer" | sed -n 's/.*"Version": "\(.*\)".*/\1/p')
cache=${MAPD_E2E_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/mapd-e2e}
hash=$({ cat build.sh "$engine/go.mod"; "$GO" version; } | git hash-object --stdin | cut -c1-16)
kyverno=$cache/kyverno-$hash
if [ -x "$kyverno" ]; then
	echo "$kyverno"
	exit
fi

mkdir -p "$cache"
tmp=$(mktemp -d "$cache/build.XXXXXX")
trap 'rm -rf "$tmp"' EXIT
trap 'exit 1' INT TERM
echo "building Kyverno $version" >&2
# In its own module, whose go.mod has the versions that it was tested with.
CGO_ENABLED=0 "$GO" -C "$module" build -mod=readonly -buildvcs=false \
	-ldflags "-s -w -X github.com/kyverno/kyverno/pkg/version.BuildVersion=$version" -o "$tmp/kyverno" ./cmd/kyverno
mv "$tmp/kyverno" "$kyverno" # at once: it appears whole or not at all
echo "$kyverno"
