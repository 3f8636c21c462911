#!/bin/sh
# What action.yml does once mapd is built: it lints POLICIES, runs TESTS, and writes
# what the policies make of OBJECTS to the file $1 and to the job's summary. It does
# all of them, and fails if one failed. Findings become annotations.
set -f # the inputs are split at spaces, and patterns are mapd's
comment=$1 failed=0

mapd lint -R -o github ${KUBERNETES:+--kubernetes "$KUBERNETES"} $POLICIES || failed=1

if [ -n "$TESTS" ]; then
	mapd test -o github $TESTS || failed=1
fi

if [ -n "$OBJECTS" ]; then
	set --
	for path in $POLICIES; do set -- "$@" -p "$path"; done
	for path in $OBJECTS; do set -- "$@" -f "$path"; done
	evaluated=yes
	# What workloads create is where most policies act.
	mapd eval -R --expand "$@" -o markdown >"$comment.part" 2>"$comment.words" || evaluated=no failed=1
	cat "$comment.words" >&2
	{
		echo '### What policies make of these objects'
		echo
		if [ -s "$comment.part" ]; then
			head -c 60000 "$comment.part" # a comment has at most 65,536 characters
			if [ "$(wc -c <"$comment.part")" -gt 60000 ]; then
				printf '\n```\n\n%s\n' 'Cut after 60,000 bytes; `mapd eval -o markdown` prints all of it.'
				echo
				tail -n 1 "$comment.part" | grep '^[0-9]* objects: ' || true
			fi
		elif [ "$evaluated" = yes ]; then
			echo 'Nothing changes.'
		else
			printf 'The objects were not evaluated:\n\n'
			head -c 10000 "$comment.words" | sed 's/^/    /' # so indented nothing is markup
		fi
	} >"$comment"
	rm "$comment.part" "$comment.words"
	if [ -n "${GITHUB_STEP_SUMMARY:-}" ]; then
		cat "$comment" >>"$GITHUB_STEP_SUMMARY"
	fi
fi
exit $failed
