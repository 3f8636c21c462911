#!/usr/bin/env bash
# hack/next.sh [ARGUMENT…] runs the tests of test/next: the cases of test/cases on the
# libraries of the next minor of Kubernetes, with the Go that its go.mod names, which the Go
# command fetches. The arguments are the tests'.
#
# Those libraries have another major of structured-merge-diff than mapd, and majors are a part
# of import paths. So one file is built in another form: pkg/openapi/smd, which is the only one
# that has such paths.
set -euo pipefail
cd "$(dirname "$0")/.."
go=${GO:-go}
GOTOOLCHAIN=$(sed -n 's/^toolchain //p' test/next/go.mod)
export GOTOOLCHAIN
ours=$(sed -n 's|.*sigs.k8s.io/structured-merge-diff/\(v[0-9]*\) .*|\1|p' go.mod)
theirs=$(sed -n 's|^[[:space:]].*sigs.k8s.io/structured-merge-diff/\(v[0-9]*\) .*|\1|p' test/next/go.mod | tail -1)

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
sed "s|structured-merge-diff/$ours/|structured-merge-diff/$theirs/|" pkg/openapi/smd/smd.go >"$tmp/smd.go"
printf '{"Replace": {"%s": "%s"}}\n' "$PWD/pkg/openapi/smd/smd.go" "$tmp/smd.go" >"$tmp/overlay.json"

$go -C test/next mod tidy -diff -overlay "$tmp/overlay.json"
$go -C test/next vet -overlay "$tmp/overlay.json" .
$go -C test/next test -overlay "$tmp/overlay.json" -vet=off -count 1 -timeout 1h . "$@"
