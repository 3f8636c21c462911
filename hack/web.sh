#!/usr/bin/env bash
# hack/web.sh OUT SITE: build mapd for a browser in OUT, hold its size against the
# limit, run it under node, and build the site into SITE. It needs node and npm.
#
# The Kubernetes modules are copied without some of their files. None of them is
# used to evaluate a policy, and the linker cannot know: cel-go's protobuf library may
# call Marshal and Unmarshal of any type that a program has, so those of all API
# types stay, 2.7 of 11.9 MB.
set -euo pipefail
cd "$(dirname "$0")/.."
out=$1 site=$2 go=${GO:-go} limit=8000000 # bytes, gzip -9
./hack/node.sh

left_out() {
	cat <<-'END'
		api */generated.pb.go
		apiextensions-apiserver */generated.pb.go
		apiextensions-apiserver */schema/defaulting/validation.go
		apiextensions-apiserver */schema/objectmeta/validation.go
		apimachinery */pkg/watch/streamwatcher.go
		kube-openapi */pkg/schemaconv/proto_models.go
		kube-openapi */pkg/validation/spec/gnostic.go
	END
}

mkdir -p "$out/modules"
cp go.mod "$out/go.mod"
cp go.sum "$out/go.sum"
for module in $(left_out | cut -d' ' -f1 | sort -u); do
	from=$($go list -m -f '{{.Dir}}' "k8s.io/$module")
	to=$out/modules/$module
	# A copy of the version that go.mod asks for is good for the next build.
	if [ "$(cat "$to.from" 2>/dev/null)" != "$from" ]; then
		rm -rf "$to"
		cp -R "$from" "$to"
		chmod -R u+w "$to"
		find "$to" -name '*_test.go' -delete
		left_out | while read -r m path; do
			[ "$m" != "$module" ] || find "$to" -path "$path" -delete
		done
		echo "$from" >"$to.from"
	fi
	$go mod edit -replace "k8s.io/$module=$(cd "$to" && pwd)" "$out/go.mod"
done

# net/http is there for names of statuses, types in signatures and a client that
# nobody uses, and keeps TLS, certificates and proxies: 0.3 MB. A few lines stand in.
http=$($go env GOROOT)/src/net/http
{
	echo '{"Replace": {'
	for file in $(GOOS=js GOARCH=wasm $go list -f '{{join .GoFiles " "}}' net/http); do
		case $file in
		status.go | method.go | http.go) ;;
		*) echo "\"$http/$file\": \"\"," ;;
		esac
	done
	echo "\"$http/http.go\": \"$PWD/web/http.go.txt\"}}"
} >"$out/overlay.json"

GOOS=js GOARCH=wasm $go build -overlay "$out/overlay.json" -modfile "$out/go.mod" -tags mapd_stable -trimpath -ldflags '-s -w' -o "$out/mapd.wasm" ./web
cp "$($go env GOROOT)/lib/wasm/wasm_exec.js" "$out/"
gzip -9 -c "$out/mapd.wasm" >"$out/mapd.wasm.gz"
size=$(wc -c <"$out/mapd.wasm.gz")
echo "mapd.wasm: $(wc -c <"$out/mapd.wasm") bytes, $size gzipped, at most $limit"

{
	printf 'evaluate '
	node -p 'JSON.stringify(JSON.parse(fs.readFileSync(0)))' <web/testdata/question.json
} | node web/testdata/run.js "$out" | diff web/testdata/answer.json -
echo "node: the answer is as expected"

app=web/app
if ! cmp -s $app/package-lock.json "$out/package-lock.json"; then
	npm --prefix $app ci
	cp $app/package-lock.json "$out/"
fi
find "$site" -mindepth 1 ! -name .keep -delete
cp "$out/mapd.wasm.gz" "$site/"
$go run ./hack/gallery "$site" "$out/blocks.json"
for config in tsconfig.json tsconfig.worker.json; do
	(cd $app && npm exec -- tsc -p $config)
done
node $app/test.mjs
node $app/build.mjs "$site" "$out/wasm_exec.js"
[ "$size" -le "$limit" ] || { echo "the program for the browser has become too large; docs/library.md says what weighs" >&2; exit 1; }
