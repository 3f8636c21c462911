#!/usr/bin/env bash
# hack/release-check.sh DIR PUB: hold the release in DIR, signed by the key whose public half is
# the file PUB, against the programs that take it: what docs/operate/verify.md says, word by word,
# with openssl, cosign, skopeo and oras; Helm on a registry; docker, podman and krew. Of what is
# not in PATH it says "not there", and with STRICT=1 it fails then. RUN="docker" runs the images with docker only, and loads them
# with podman. The registry is docker-registry (Debian) or registry
# (github.com/distribution/distribution), on localhost.
set -euo pipefail
page=$(cd "$(dirname "$0")/.." && pwd)/docs/operate/verify.md
pub=$(realpath "$2")
dir=$(realpath "$1")
tmp=$(mktemp -d)
registry=
trap '[ -z "$registry" ] || kill "$registry"; rm -rf "$tmp"' EXIT
trap 'exit 1' INT TERM
cp -R "$dir" "$tmp/release"
cp "$pub" "$tmp/release/mapd.pub"
cd "$tmp/release"
version=$(basename mapd_*.intoto.jsonl .intoto.jsonl)
version=${version#mapd_}
host=$(uname -m)
case $host in x86_64) host=amd64 ;; aarch64) host=arm64 ;; esac

there() {
	for program; do
		! type -P "$program" || return 0
	done >/dev/null
	echo "not there: $*"
	[ "${STRICT:-}" != 1 ] || exit 1
	return 1
}

# The commands below a heading of the page that contain a word, with this version and registry.
commands() {
	awk -v heading="## $1" '/^## /{on = $0 == heading} on && /^    /' "$page" | grep -e "$2" |
		sed -e 's/^    //' -e "s/1\.2\.3/${version#v}/g" -e "s/VERSION/$version/g" -e "s/registry\.example\.com/127.0.0.1:${port:-}/g"
}
documented() {
	commands "$1" "$2" >"$tmp/commands"
	[ -s "$tmp/commands" ] || { echo "$page: nothing with $2 below $1" >&2; exit 1; }
	sed 's/^/+ /' "$tmp/commands"
	bash -euo pipefail "$tmp/commands"
}

if there openssl; then documented "With openssl" .; fi
if there cosign; then documented "With cosign" .; fi

if there registry docker-registry; then
	port=$((20000 + $$ % 20000))
	printf 'version: 0.1\nstorage: {filesystem: {rootdirectory: %s/registry}}\nhttp: {addr: "127.0.0.1:%s"}\n' "$tmp" "$port" >"$tmp/registry.yml"
	"$(type -P registry docker-registry | head -1)" serve "$tmp/registry.yml" >"$tmp/registry.log" 2>&1 &
	registry=$!
	until curl -fs "http://127.0.0.1:$port/v2/" >/dev/null; do
		kill -0 "$registry"
		sleep 0.1
	done
	# This one speaks HTTP.
	skopeo() { command skopeo "$1" --dest-tls-verify=false "${@:2}"; }
	helm() { command helm "$1" --plain-http "${@:2}"; }
	oras() { command oras "$1" --to-plain-http "${@:2}"; }
	export -f skopeo helm oras
	pulled() {
		if there helm; then
			helm pull "oci://127.0.0.1:$port/charts/mapd" --version "${version#v}" --destination "$tmp"
			cmp "mapd-${version#v}.tgz" "$tmp/mapd-${version#v}.tgz"
		fi
	}
	if there skopeo; then
		documented "The image" "skopeo copy"
		# The digest in the registry is that of the layout.
		digest=$(tar -xOf "mapd_${version}_image.tar" index.json | sed 's/.*"digest":"\([^"]*\)".*/\1/')
		curl -fsI -H "Accept: application/vnd.oci.image.index.v1+json" "http://127.0.0.1:$port/v2/mapd/manifests/$version" | tr -d '\r' | grep -ix "docker-content-digest: $digest"
	fi
	if there oras; then documented "The image" "oras cp"; pulled; fi
	if there helm; then documented "The image" "helm push"; pulled; fi
fi

# Each image is loaded, and says what it is.
for program in podman docker; do
	there $program || continue
	"$program" info >/dev/null 2>&1 || { echo "does not run: $program"; [ "${STRICT:-}" != 1 ] || exit 1; continue; }
	for kind in "" -fips; do
		"$program" load --input "mapd_${version}_image$kind.tar"
		image=ghcr.io/mapd-project/mapd:$version$kind
		"$program" image inspect "$image" >/dev/null 2>&1 || image=$image-$host
		[ "$("$program" image inspect --format '{{.Config.User}} {{.Architecture}}' "$image")" = "65532:65532 $host" ]
		[[ " ${RUN-podman docker} " == *" $program "* ]] || continue
		said=$("$program" run --rm --network host "$image" version)
		echo "$program: $image: $said"
		fips=
		[[ $said != *"FIPS 140-3 mode"* ]] || fips=-fips
		[[ $said == "mapd $version, "* && $fips == "$kind" ]]
	done
done

if there validate-krew-manifest; then validate-krew-manifest -manifest mapd.yaml -skip-install; fi
if there krew; then
	export KREW_ROOT=$tmp/krew
	krew install --manifest=mapd.yaml --archive="mapd_${version}_linux_$host.tar.gz"
	"$KREW_ROOT/bin/kubectl-mapd" version
fi
