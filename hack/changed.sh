#!/usr/bin/env bash
# hack/changed.sh MODULE PATH… runs the tests of a module that builds much and changes seldom:
# test/monitoring has Prometheus' own rule manager, test/kyverno Kyverno's own engine. The
# module and the paths are what it tests: what has passed here with the same bytes is not built
# and run again, nor what none of the last hundred commits and no uncommitted change touches.
# FORCE=1 runs it all the same, as make nightly does. A shallow clone has all in one commit, so
# there it runs.
#
# MAPD_E2E_CACHE is where it is noted what has passed, by default mapd-e2e in the user's cache.
set -euo pipefail
cd "$(dirname "$0")/.."
go=${GO:-go}
module=$1
cache=${MAPD_E2E_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/mapd-e2e}
hash=$({ find "$@" -type f | LC_ALL=C sort | while read -r f; do echo "$f"; cat "$f"; done; $go version; cat hack/changed.sh; } | git hash-object --stdin | cut -c1-16)
passed=$cache/$(basename "$module")-$hash
if [ -z "${FORCE:-}" ] && [ -e "$passed" ]; then
	echo "$module: passed before with the same files (FORCE=1 runs it)"
	exit
fi
if [ -z "${FORCE:-}" ] && git rev-parse -q --verify HEAD~100 >/dev/null && git diff --quiet HEAD~100 -- "$@" && [ -z "$(git status --porcelain -- "$@")" ]; then
	echo "$module: unchanged within the last hundred commits (FORCE=1 runs it)"
	exit
fi
$go -C "$module" vet ./...
staticcheck=$($go tool -n staticcheck)
(cd "$module" && $staticcheck ./...)
$go -C "$module" test -count 1 -vet=off -timeout 1h ./...
mkdir -p "$cache"
: >"$passed"
