#!/usr/bin/env bash
# hack/monitoring.sh runs test/monitoring, the alerts in Prometheus' own rule manager. It reads
# its own files and manifests/monitoring, nothing else: what has passed with the same bytes
# is not built and run again. FORCE=1 runs it all the same, as make nightly does.
#
# MAPD_E2E_CACHE is where it is noted what has passed, by default mapd-e2e in the user's cache.
set -euo pipefail
cd "$(dirname "$0")/.."
go=${GO:-go}
cache=${MAPD_E2E_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/mapd-e2e}
hash=$({ find test/monitoring manifests/monitoring -type f | LC_ALL=C sort | while read -r f; do echo "$f"; cat "$f"; done; $go version; cat hack/monitoring.sh; } | git hash-object --stdin | cut -c1-16)
passed=$cache/monitoring-$hash
if [ -z "${FORCE:-}" ] && [ -e "$passed" ]; then
	echo "test/monitoring: passed before with the same files (FORCE=1 runs it)"
	exit
fi
$go -C test/monitoring vet ./...
staticcheck=$($go tool -n staticcheck)
(cd test/monitoring && $staticcheck ./...)
$go -C test/monitoring test -count 1 -vet=off -timeout 1h ./...
mkdir -p "$cache"
: >"$passed"
