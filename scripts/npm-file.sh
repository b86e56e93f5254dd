#!/usr/bin/env bash
# npm-file.sh PACKAGE@VERSION INTEGRITY FOLDER FILE…
# puts files of one npm package, whose content is pinned by its integrity as
# package-lock.json would have it, into FOLDER. Nothing of it is run.
set -euo pipefail
package=$1 want=$2 folder=$3
shift 3
stamp=$folder/.${package%@*}
[ "$(cat "$stamp" 2>/dev/null || true)" = "$want $*" ] && exit 0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
npm pack --silent --ignore-scripts --pack-destination "$work" "$package" >/dev/null
got=sha512-$(openssl dgst -sha512 -binary "$work"/*.tgz | base64 -w 0)
if [ "$got" != "$want" ]; then
  echo "$package: got $got, want $want" >&2
  exit 1
fi
mkdir -p "$folder"
tar -xzf "$work"/*.tgz -C "$folder" --strip-components=1 "${@/#/package/}"
echo "$want $*" >"$stamp"
