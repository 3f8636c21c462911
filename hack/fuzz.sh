#!/bin/sh
# Runs every fuzz target of the modules for the given time, one after the other:
# Go fuzzes one target of one package at a time. Inputs are not minimized: where
# coverage depends on map order or on what is cached, that takes all the time.
set -eu
time=${1:-60s}
targets=$(grep -rHoE '^func (Fuzz[A-Za-z0-9_]+)' --include='*_test.go' test pkg internal cmd web |
	sed -E 's#/[^/]*_test.go:func # #' | sort -u -k1,1r -k2,2)
echo "$targets" | while read -r pkg target; do
	echo "== $pkg $target for $time"
	go -C "$pkg" test . -run '^$' -fuzz "^$target\$" -fuzztime "$time" -fuzzminimizetime 1x
done
