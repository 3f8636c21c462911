#!/bin/sh
# Runs mapd's own benchmarks, those of test/bench, on this tree as it is and on
# another revision, in turns, and prints how they compare. The revision gets this
# tree's benchmarks, so that both sides do the same; its worktree is removed again.
#   hack/bench-compare.sh REVISION [REGEXP [TURNS [BENCHTIME]]]
set -eu
base=${1:-} only=${2:-.} turns=${3:-6} benchtime=${4:-50ms}
cd "$(git rev-parse --show-toplevel)"
GO=${GO:-go}

fail() {
	echo "bench-compare: $*" >&2
	exit 1
}

[ -n "$base" ] || fail "which revision? make bench-compare BASE=<rev>"
if ! rev=$(git rev-parse --verify --quiet "$base^{commit}"); then
	hint=
	if [ "$(git rev-parse --is-shallow-repository)" = true ]; then
		hint="; this clone is shallow: git fetch --unshallow, or git fetch --depth 1 origin $base and BASE=FETCH_HEAD"
	fi
	fail "there is no commit $base$hint"
fi

dir=$(mktemp -d)
trap 'git worktree remove --force "$dir/tree" >/dev/null 2>&1; rm -rf "$dir"; git worktree prune' EXIT
trap 'exit 130' INT TERM HUP

git worktree add --quiet --detach "$dir/tree" "$rev"
rm -rf "$dir/tree/test/bench"
mkdir -p "$dir/tree/test"
cp -R test/bench "$dir/tree/test/bench"

$GO test -c -o "$dir/new.test" ./test/bench || fail "the benchmarks of this tree do not compile"
if ! $GO -C "$dir/tree" test -c -o "$dir/old.test" ./test/bench 2>"$dir/errors"; then
	cat "$dir/errors" >&2
	fail "the benchmarks of this tree do not compile with the packages of $base: choose a later revision"
fi

# run measures all benchmarks once and keeps the output.
run() {
	if ! "$dir/$1.test" -test.run '^$' -test.bench "$only" -test.benchtime "$benchtime" -test.benchmem >"$dir/turn" 2>&1; then
		cat "$dir/turn" >&2
		fail "the benchmarks of the $1 tree went wrong"
	fi
	cat "$dir/turn" >>"$dir/$1.txt"
}

echo "old: $(git describe --tags --always "$rev"), new: $(git describe --tags --always --dirty)" >&2
turn=1
while [ "$turn" -le "$turns" ]; do
	echo "turn $turn of $turns" >&2
	# Neither is always the one that comes first.
	if [ $((turn % 2)) -eq 1 ]; then
		run old
		run new
	else
		run new
		run old
	fi
	turn=$((turn + 1))
done
grep -q '^Benchmark' "$dir/new.txt" || fail "no benchmark matches $only"
$GO tool benchstat "old=$dir/old.txt" "new=$dir/new.txt"
