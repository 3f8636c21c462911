#!/usr/bin/env bash
# hack/node.sh makes sure that node, of version 20 or newer, and npm are in PATH. If one is
# missing it installs Debian's packages, if it may.
set -euo pipefail
complete() {
	command -v node >/dev/null && command -v npm >/dev/null && [ "$(node -p 'process.versions.node.split(".")[0]')" -ge 20 ]
}
if ! complete && command -v apt-get >/dev/null && [ "$(id -u)" = 0 ]; then
	export DEBIAN_FRONTEND=noninteractive
	{ apt-get update -q && apt-get install -q -y --no-install-recommends nodejs npm; } >&2 || true
fi
complete || {
	echo "hack/node.sh: the program for a browser and the playground are built with node 20 or newer, and npm; node: $(node --version 2>/dev/null || echo missing), npm: $(npm --version 2>/dev/null || echo missing)" >&2
	exit 1
}
