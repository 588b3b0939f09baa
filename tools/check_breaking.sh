#!/usr/bin/env bash
# Fails when the contract breaks against the last release tag: check_breaking.sh BUF.
set -euo pipefail
tag=$(git describe --tags --abbrev=0 --match 'v*' 2>/dev/null || true)
if [ -z "$tag" ]; then
  echo "buf breaking: no release tag yet, nothing to compare to"
  exit 0
fi
"$1" breaking --against ".git#tag=$tag"
