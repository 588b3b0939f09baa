#!/usr/bin/env bash
# Generates the Python stubs: generate_stubs.sh BIN_DIR OUT_DIR. The package equals the proto package, so that no import
# needs rewriting.
set -euo pipefail
bin=$1 out=$2
"$bin/python" -m grpc_tools.protoc -Iproto \
  --python_out="$out" --pyi_out="$out" --grpc_python_out="$out" \
  --plugin=protoc-gen-mypy_grpc="$bin/protoc-gen-mypy_grpc" --mypy_grpc_out=quiet:"$out" \
  proto/recalld/v1/*.proto
