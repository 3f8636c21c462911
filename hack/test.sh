#!/usr/bin/env bash
# hack/test.sh runs the tests of this module. Where goroutines meet, the race detector
# watches; the rest does without, for which it computes five to ten times as fast. No list
# is kept by hand:
#
#   - a package is concurrent if its code starts goroutines: its tests run with the race
#     detector, but for those that say that they are not for it, or have less to do with it
#     (hammer.Alone, hammer.Allocs, hammer.Count, hammer.Race, testing.Short), which run without;
#   - a package is shared if only its tests start goroutines: the tests of the files that do
#     run with the race detector, and all of its tests without;
#   - the rest runs without.
#
# `hack/test.sh -n` prints the lists. `make nightly` runs all with the race detector.
set -euo pipefail
cd "$(dirname "$0")/.."
go=${GO:-go}

starts='^\s*go (func\b|[a-zA-Z_.]+\()|\.(Go|Parallel|RunParallel|AfterFunc)\(|httptest\.New(TLS|Unstarted)?Server|hammer\.Run|parallel\.[A-Z]|synctest\.'
export says='hammer[.](Alone|Allocs|Race|Count)|testing[.](Short|AllocsPerRun)[(]' # awk reads it, too

all=$($go list -f "{{if or .TestGoFiles .XTestGoFiles}}{{.Dir}}{{end}}" ./... | sed "s#^$PWD#.#" | sort)
# Code for a browser has no threads.
starting=$(grep -rlE --include='*.go' --exclude='*_js.go' "$starts" .)
among() { comm -12 <(echo "$all") <(xargs -n1 dirname | sort -u); }
concurrent=$(grep -v '_test\.go$' <<<"$starting" | among)
shared=$(comm -23 <(grep '_test\.go$' <<<"$starting" | among) <(echo "$concurrent"))
# A file without a test is for those of the other files.
files=$(for p in $shared; do
	some=$(grep "^$p/[^/]*_test\.go\$" <<<"$starting")
	if [ -n "$(grep -LE '^func (Test|Fuzz|Example)' $some)" ]; then ls "$p"/*_test.go; else echo "$some"; fi
done)
rest=$(comm -23 <(echo "$all") <(echo "$concurrent"))

# functions prints PACKAGE FUNCTION for each function that has a line that matches $says.
functions() {
	grep -lE "$says" $(for p in $concurrent; do ls "$p"/*_test.go 2>/dev/null || true; done) | xargs awk '
		/^func / { name = $0; sub(/^func (\([^)]*\) )?/, "", name); sub(/[^A-Za-z0-9_].*/, "", name) }
		$0 ~ ENVIRON["says"] { package = FILENAME; sub(/\/[^\/]*$/, "", package); print package, name }' | sort -u
}
alone=$(functions)
if helpers=$(grep -vE ' (Test|Fuzz)' <<<"$alone"); then
	printf 'hack/test.sh: what asks for -short or the race detector must be a test itself, so that one can say which tests those are:\n%s\n' "$helpers" >&2
	exit 1
fi
names=$(cut -d' ' -f2 <<<"$alone" | sort -u | paste -sd'|')
packages=$(cut -d' ' -f1 <<<"$alone" | sort -u)
together=$(grep -hoE '^func (Test|Fuzz|Example)[A-Za-z0-9_]*' $files | cut -d' ' -f2 | sort -u | paste -sd'|')

if [ "${1:-}" = -n ]; then
	printf 'with the race detector:\n%s\n\nwithout it, of these packages:\n%s\n\nwith it, of other packages:\n%s\n' "$concurrent" "$alone" "$files"
	exit
fi
# A step that fails does not keep the others from running.
failed=
step() {
	echo "== $1"
	shift
	"$@" || failed=yes
}
# Vet is a step of make check, of all packages in one build configuration.
CGO_ENABLED=1 step "with the race detector" $go test -vet=off -race -short -timeout 1h $concurrent
CGO_ENABLED=1 step "with the race detector: tests that start goroutines" $go test -vet=off -race -short -timeout 1h -run "^($together)\$" $shared
step "without the race detector" $go test -vet=off -timeout 1h $rest
step "without the race detector: what computes much, or counts allocations" $go test -vet=off -timeout 1h -run "^($names)\$" $packages
[ -z "$failed" ] || { echo "hack/test.sh: tests failed, see FAIL above" >&2; exit 1; }
