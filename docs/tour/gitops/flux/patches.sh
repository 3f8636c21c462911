#!/bin/sh
# A HelmRelease takes patches of kustomize as post-renderers, and runs no programs. So this
# prints spec.postRenderers with what the policies make of a rendered chart:
#   helm template web ./chart -n shop | patches.sh POLICIES NAMESPACE
# It has to be made again for each version of the chart and of the policies.
set -eu
mapd eval --quiet -p "$1" -n "$2" -f - -o patch | jq -s '
  {postRenderers: [{kustomize: {patches: [.[] | select(.patch != []) |
    {target: {group: (.apiVersion | if contains("/") then split("/")[0] else "" end), kind, name}, patch: (.patch | tojson)}]}}]}'
