#!/usr/bin/env bash
# Run speedmatrix against a real vLLM server, on a machine without a GPU.
#
# It installs the CPU build of vLLM in a virtual environment outside the
# repository, makes a tiny random-weight model, serves it on the loopback
# address, and either records the server's raw responses (`capture`) or measures
# it (`collect`). Needs Linux on x86-64, Python 3.11 to 3.13, Go, about 10 GB of
# disk and 4 GB of memory.
set -euo pipefail

repo_root="$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)"
readonly repo_root
readonly scripts="$repo_root/scripts"

readonly work="${SPEEDMATRIX_VLLM_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/speedmatrix-vllm}"
readonly python="${PYTHON:-python3}"
readonly port="${PORT:-8111}"
readonly out="${OUT:-results}"
readonly start_timeout="${START_TIMEOUT:-600}"
# The context length and the number of 128-token KV blocks, chosen so that the
# larger cells of a small matrix do not fit: 192 blocks hold 24,576 tokens.
readonly max_model_len="${MAX_MODEL_LEN:-16384}"
readonly kv_blocks="${KV_BLOCKS:-192}"

readonly venv="$work/venv"
readonly model=tiny-llama
readonly served_name=tiny
readonly base_url="http://127.0.0.1:$port"

server_pid=

usage() {
  cat <<USAGE
usage: scripts/real-vllm.sh COMMAND [SERVER FLAG...]

  install   make the virtual environment ($venv)
  model     make the model directory ($work/$model)
  serve     serve the model in the foreground on $base_url; more flags for
            the server may follow
  capture   start servers and record their raw responses under
            collect/stream/testdata/vllm/
  collect   start a server, run the collector and the renderer, stop the server
  all       install, model and collect

Environment: SPEEDMATRIX_VLLM_DIR, PYTHON, PORT, OUT, START_TIMEOUT,
MAX_MODEL_LEN, KV_BLOCKS.
USAGE
}

say() { printf '== %s\n' "$*" >&2; }
die() { printf 'real-vllm.sh: %s\n' "$*" >&2; exit 1; }

install_vllm() {
  "$python" - <<'PY' || die "needs Python 3.11 to 3.13: set PYTHON"
import sys
sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))
PY
  [[ -x $venv/bin/python ]] || "$python" -m venv "$venv"
  say "installing vLLM in $venv"
  # --no-deps, since the list is complete and one of its entries is not what the
  # package asks for; the reason is in the file.
  "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps \
    --requirement "$scripts/vllm-requirements.txt"
}

make_model() {
  require_venv
  "$venv/bin/python" "$scripts/tiny_model.py" "$work/$model"
}

require_venv() {
  [[ -x $venv/bin/python ]] || die "no virtual environment in $venv: run 'install' first"
}

# Replaces this process (or the subshell it runs in) with the server.
exec_server() {
  require_venv
  [[ -f $work/$model/config.json ]] || die "no model in $work: run 'model' first"
  # The model is named by a relative path, so that no response has a local path.
  cd -- "$work"
  # Nothing is to be fetched or reported.
  export HF_HUB_OFFLINE=1 VLLM_NO_USAGE_STATS=1 DO_NOT_TRACK=1
  # Without an amount the server claims most of the machine's memory.
  export VLLM_CPU_KVCACHE_SPACE=1
  # Run the model inside the engine process. The default, a worker process that
  # is waited for in a spin loop, keeps two cores busy; on a machine with two,
  # the tokens then reach the client late and in bursts.
  export VLLM_ENABLE_V1_MULTIPROCESSING=0 VLLM_CPU_OMP_THREADS_BIND=nobind
  export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"
  # The module and not the `vllm` command, which looks for a distribution named
  # "vllm" and finds none where vllm-cpu is installed.
  #
  # --max-num-batched-tokens: above the KV capacity, so that no prompt is ever
  # prefilled in parts. On the CPU a request with a `seed` whose prefill is split
  # kills vLLM 0.32 ("CPU Generator does not use offset").
  exec "$venv/bin/python" -m vllm.entrypoints.launchers.api_server.entry \
    --model "$model" --served-model-name "$served_name" \
    --host 127.0.0.1 --port "$port" \
    --load-format dummy --dtype float32 --enforce-eager \
    --max-model-len "$max_model_len" --num-gpu-blocks-override "$kv_blocks" \
    --max-num-batched-tokens 32768 \
    --enable-prompt-tokens-details "$@"
}

start_server() {
  if curl --silent --max-time 2 --output /dev/null "$base_url/health"; then
    die "something already answers on $base_url: stop it or set PORT"
  fi
  local log="$work/server.log" deadline=$((SECONDS + start_timeout))
  say "starting vLLM on $base_url (log: $log)"
  (exec_server "$@") >"$log" 2>&1 &
  server_pid=$!
  until curl --silent --fail --max-time 2 "$base_url/health"; do
    kill -0 "$server_pid" 2>/dev/null || die "the server stopped: $(tail -n 5 "$log")"
    ((SECONDS < deadline)) || die "the server was not ready in $start_timeout s: see $log"
    sleep 1
  done
}

# The server waits for open connections before it exits, and the engine behind
# them is gone by then: a client that is still connected would hold it for ever.
stop_server() {
  [[ -n $server_pid ]] || return 0
  kill "$server_pid" 2>/dev/null || true
  for _ in {1..15}; do
    kill -0 "$server_pid" 2>/dev/null || break
    sleep 1
  done
  kill -KILL "$server_pid" 2>/dev/null || true
  wait "$server_pid" 2>/dev/null || true
  server_pid=
}

# Two servers, since some responses need other flags: an API key, a reasoning
# parser and split prefill, which is also the way to make the engine die.
capture() {
  local dir="$repo_root/collect/stream/testdata/vllm"
  start_server
  "$venv/bin/python" "$scripts/capture.py" --url "$base_url" --out "$dir" default
  stop_server
  start_server --api-key capture-key --reasoning-parser deepseek_r1 \
    --enable-per-request-metrics --max-num-batched-tokens 512
  "$venv/bin/python" "$scripts/capture.py" --url "$base_url" --out "$dir" \
    --api-key capture-key guarded
  stop_server
}

collect() {
  start_server
  cd -- "$repo_root"
  # 8 requests of 4K and 512 more tokens do not fit the KV cache of 24,576: the
  # page has a cell that is over capacity.
  local run
  run=$(go run ./cmd/speedmatrix collect --url "$base_url" --backend cpu \
    --contexts 512,1K,2K,4K --concurrency 1,2,4,8 --duration 10s --max-output 512 --out "$out")
  stop_server
  go run ./cmd/speedmatrix render "$run" --markdown-into "$out"
  go run ./cmd/speedmatrix render "$out" -o site
}

main() {
  local command="${1:-}"
  shift || true
  trap stop_server EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM
  case "$command" in
    install) install_vllm ;;
    model) make_model ;;
    serve) exec_server "$@" ;;
    capture) capture ;;
    collect) collect ;;
    all) install_vllm; make_model; collect ;;
    -h | --help | help) usage ;;
    *) usage >&2; exit 2 ;;
  esac
}

main "$@"
