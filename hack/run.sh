#!/bin/sh
# Starts the webhook on every example, sends it a Pod as an API server would,
# prints what changed, and stops it. The Pod is the sidecar case of the
# Kubernetes documentation: a mesh proxy with args in front of the init
# containers.
set -eu
mapd=$1
dir=$(mktemp -d)
trap 'kill "$server" 2>/dev/null; wait "$server" 2>/dev/null; rm -rf "$dir"' EXIT
trap 'exit 1' INT TERM

set --
for policy in examples/*/policy.yaml; do
	set -- "$@" --policies "$policy"
done
"$mapd" serve --listen 127.0.0.1:0 "$@" >"$dir/out" 2>"$dir/log" &
server=$!

url= ca=
tries=0
while [ -z "$url" ] || [ -z "$ca" ]; do
	if ! kill -0 "$server" 2>/dev/null || [ "$tries" -gt 100 ]; then
		echo "mapd serve did not start:" >&2
		cat "$dir/out" "$dir/log" >&2
		exit 1
	fi
	tries=$((tries + 1))
	sleep 0.1
	url=$(sed -n 's/^mapd serve: listening on //p' "$dir/out")
	ca=$(sed -n 's/^mapd serve: CA bundle in //p' "$dir/out")
done

echo "mapd serve answers at $url with the policies of examples/"
echo "sending examples/sidecar-jsonpatch/objects.yaml:"
echo
code=0
"$mapd" send --server "$url" --ca-file "$ca" -f examples/sidecar-jsonpatch/objects.yaml >"$dir/diff" || code=$?
cat "$dir/diff"
[ "$code" -eq 0 ] || exit "$code"
if ! grep -q 'spec\.initContainers.*mesh-proxy' "$dir/diff"; then
	echo "mapd send shows no mesh-proxy in spec.initContainers" >&2
	exit 1
fi
