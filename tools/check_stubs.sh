#!/usr/bin/env bash
# Fails when the committed stubs are not what proto/ generates: check_stubs.sh BIN_DIR.
set -euo pipefail
fresh=$(mktemp -d)
trap 'rm -rf "$fresh"' EXIT
tools/generate_stubs.sh "$1" "$fresh"
for made in "$fresh"/recalld/v1/*; do
  if ! cmp -s "$made" "pyclient/recalld/v1/$(basename "$made")"; then
    echo "stale stub: pyclient/recalld/v1/$(basename "$made"); run make gen" >&2
    exit 1
  fi
done
for kept in pyclient/recalld/v1/*_pb2*; do
  if [ ! -e "$fresh/recalld/v1/$(basename "$kept")" ]; then
    echo "stub without a proto file: $kept" >&2
    exit 1
  fi
done
echo "stubs are up to date"
