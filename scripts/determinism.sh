#!/usr/bin/env bash
# Renders the sample runs twice, the second time in another time zone and
# locale and with the runs named in the opposite order, and compares bytes.
set -euo pipefail
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
go build -trimpath -o "$work/speedmatrix" ./cmd/speedmatrix
TZ=UTC LC_ALL=C "$work/speedmatrix" render results -o "$work/a" >/dev/null
mapfile -t runs < <(find results -name run.json -exec dirname {} \; | sort -r)
TZ=Asia/Kathmandu LC_ALL=de_DE.UTF-8 "$work/speedmatrix" render "${runs[@]}" -o "$work/b" >/dev/null
diff -r "$work/a" "$work/b"
echo "determinism: $(find "$work/a" -type f | wc -l) files of ${#runs[@]} runs are the same bytes twice"
