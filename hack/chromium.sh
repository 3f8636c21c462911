#!/usr/bin/env bash
# hack/chromium.sh prints the path of Chromium: MAPD_CHROMIUM, or one in PATH, or
# Debian's package, which it installs if it may.
set -euo pipefail
if [ -n "${MAPD_CHROMIUM:-}" ]; then
	command -v "$MAPD_CHROMIUM" && exit
	echo "hack/chromium.sh: MAPD_CHROMIUM=$MAPD_CHROMIUM: no such program" >&2
	exit 1
fi
found() {
	for name in chromium chromium-browser google-chrome-stable google-chrome; do
		command -v "$name" && return
	done
	return 1
}
if found; then
	exit
fi
if command -v apt-get >/dev/null && [ "$(id -u)" = 0 ]; then
	export DEBIAN_FRONTEND=noninteractive
	{ apt-get update -q && apt-get install -q -y --no-install-recommends chromium; } >&2 || true
	if found; then
		exit
	fi
fi
echo "hack/chromium.sh: the tests of the playground need Chromium: install it (Debian's package is chromium), or set MAPD_CHROMIUM to its path" >&2
exit 1
