#!/usr/bin/env bash
# hack/chromium.sh prints the path of Chromium: MAPD_CHROMIUM, or one in PATH.
set -euo pipefail
if [ -n "${MAPD_CHROMIUM:-}" ]; then
	command -v "$MAPD_CHROMIUM" && exit
	echo "hack/chromium.sh: MAPD_CHROMIUM=$MAPD_CHROMIUM: no such program" >&2
	exit 1
fi
for name in chromium chromium-browser google-chrome-stable google-chrome; do
	command -v "$name" && exit
done
echo "hack/chromium.sh: the tests of the playground need Chromium: install it (on Debian: apt-get install chromium), or set MAPD_CHROMIUM to its path" >&2
exit 1
