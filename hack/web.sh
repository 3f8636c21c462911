#!/usr/bin/env bash
# hack/web.sh OUT SITE: build mapd for a browser in OUT, hold its size against the
# limit, run it under node, and build the site into SITE. It needs node and npm. OUT and SITE
# are paths below this tree. The same commit, Go and node give the same bytes.
#
# The Kubernetes modules are copied without some of their files. None of them is
# used to evaluate a policy, and the linker cannot know: cel-go's protobuf library may
# call Marshal and Unmarshal of any type that a program has, so those of all API
# types stay, 2.7 of 11.9 MB. What types of the API say of their fields is in files that the page
# fetches (internal/site), and would weigh another 0.2 MB.
set -euo pipefail
cd "$(dirname "$0")/.."
out=$1 site=$2 go=${GO:-go} limit=8000000 # bytes, gzip -9
./hack/node.sh

left_out() {
	cat <<-'END'
		github.com/google/cel-go */cel/prompt.go
		github.com/json-iterator/go *.go
		k8s.io/api */generated.pb.go
		k8s.io/api */types_swagger_doc_generated.go
		k8s.io/apiextensions-apiserver */generated.pb.go
		k8s.io/apiextensions-apiserver */schema/defaulting/validation.go
		k8s.io/apiextensions-apiserver */schema/objectmeta/validation.go
		k8s.io/apimachinery */generated.pb.go
		k8s.io/apimachinery */pkg/runtime/types_proto.go
		k8s.io/apimachinery */pkg/api/resource/quantity_proto.go
		k8s.io/apimachinery */pkg/watch/streamwatcher.go
		k8s.io/kube-openapi */pkg/schemaconv/proto_models.go
		k8s.io/kube-openapi */pkg/validation/spec/gnostic.go
	END
}

# What stands in for files that are left out, or in their place: web/standin/MODULE/FILE.txt.
standins() { (cd web/standin && find . -path "./$1/*" -name '*.txt' -printf '%P\n'); }

mkdir -p "$out/modules"
cp go.mod "$out/go.mod"
cp go.sum "$out/go.sum"
# Those of the tests and tools may be all that was fetched so far.
left_out | cut -d' ' -f1 | sort -u | xargs $go mod download
recipe=$(find hack/web.sh web/standin -type f | sort | xargs cat | cksum)
for module in $(left_out | cut -d' ' -f1 | sort -u); do
	from="$($go list -m -f '{{.Dir}}' "$module") $recipe"
	to=$out/modules/$module
	# A copy of the version that go.mod asks for is good for the next build.
	if [ "$(cat "$to.from" 2>/dev/null)" != "$from" ]; then
		rm -rf "$to"
		mkdir -p "$(dirname "$to")"
		cp -R "${from% $recipe}" "$to"
		chmod -R u+w "$to"
		find "$to" -name '*_test.go' -delete
		left_out | while read -r m path; do
			[ "$m" != "$module" ] || find "$to" -path "$path" -delete
		done
		standins "$module" | while read -r file; do
			cp "web/standin/$file" "$out/modules/${file%.txt}"
		done
		echo "$from" >"$to.from"
	fi
	# A path within the tree: it is in the program, and must be the same everywhere.
	$go mod edit -replace "$module=./$to" "$out/go.mod"
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
	echo "\"$http/http.go\": \"$PWD/web/standin/std/net/http/http.go.txt\"}}"
} >"$out/overlay.json"

GOOS=js GOARCH=wasm $go build -overlay "$out/overlay.json" -modfile "$out/go.mod" -tags mapd_fetch -trimpath -ldflags '-s -w' -o "$out/mapd.wasm" ./web
$go run ./hack/wasmlimit "$out/mapd.wasm" $((1 << 30))
cp "$($go env GOROOT)/lib/wasm/wasm_exec.js" "$out/"
rm -rf "$out/schemas"
mkdir "$out/schemas"
$go run ./pkg/openapi/internal/site pkg/openapi/builtin "$out/schemas"
gzip -9 -n -c "$out/mapd.wasm" >"$out/mapd.wasm.gz"
size=$(wc -c <"$out/mapd.wasm.gz")
echo "mapd.wasm: $(wc -c <"$out/mapd.wasm") bytes, $size gzipped, at most $limit"

# All that test/cases, the gallery and each method say, here and under node.
MAPD_WEB=$(cd "$out" && pwd) $go test ./web -count 1 -run '^(TestParity|TestMissingSchema|TestMissingDescriptions)$'

# The copy says for which packages npm was done, and goes with them.
app=web/app
if ! cmp -s $app/package-lock.json $app/node_modules/.done; then
	npm --prefix $app ci
	cp $app/package-lock.json $app/node_modules/.done
fi
find "$site" -mindepth 1 ! -name .keep -delete
cp -R "$out/mapd.wasm.gz" "$out/schemas" "$site/"
$go run ./hack/gallery "$site" "$out/blocks.json"
for config in tsconfig.json tsconfig.worker.json; do
	(cd $app && npm exec --no -- tsc -p $config)
done
node $app/test.mjs
node $app/build.mjs "$site" "$out/wasm_exec.js"
[ "$size" -le "$limit" ] || { echo "the program for the browser has become too large; docs/reference/library.md says what weighs" >&2; exit 1; }
