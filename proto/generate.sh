#!/bin/sh
# Regenerates the committed code beside the .proto files. Arguments: the output folder (default: beside them).
set -eu
cd "$(dirname "$0")"
out="${1:-.}"
"${PYTHON:-python3}" -m grpc_tools.protoc -I . --python_out="$out" --pyi_out="$out" --grpc_python_out="$out" mtplx_proto/v1/*.proto
