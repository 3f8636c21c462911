#!/bin/sh
# Flux runs no programs, so the pipeline renders before Flux sees the manifests:
#   render.sh KUSTOMIZATION POLICIES NAMESPACE DIRECTORY
# and then, with the CLI of Flux (its argument --source and --revision say where it is from):
#   flux push artifact oci://registry.example.com/shop/web:main --path DIRECTORY …
set -eu
mkdir -p "$4"
mapd post-render --quiet -k "$1" -p "$2" -n "$3" >"$4/rendered.yaml.new"
mv "$4/rendered.yaml.new" "$4/rendered.yaml"
