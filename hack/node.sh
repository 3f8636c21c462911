#!/usr/bin/env bash
# hack/node.sh says whether node, of version 20 or newer, and npm are in PATH.
set -euo pipefail
if command -v node >/dev/null && command -v npm >/dev/null && [ "$(node -p 'process.versions.node.split(".")[0]')" -ge 20 ]; then
	exit
fi
echo "hack/node.sh: the program for a browser and the playground are built with node 20 or newer, and npm: install them (on Debian 13: apt-get install nodejs npm); node: $(node --version 2>/dev/null || echo missing), npm: $(npm --version 2>/dev/null || echo missing)" >&2
exit 1
