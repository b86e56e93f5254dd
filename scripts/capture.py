#!/usr/bin/env python3
"""Record the raw responses of a real vLLM server as test data.

    python capture.py --url http://127.0.0.1:8111 --out DIR default
    python capture.py --url http://127.0.0.1:8111 --out DIR --api-key KEY guarded

Each file NAME.http under DIR/<server version>/ has every byte of one response as
it came from the socket: status line, headers, and the body still in its chunked
transfer encoding. manifest.json lists what was sent for each, and README.md says
the same for a reader. A suite replaces what an earlier run of it recorded.

The two suites need servers started with different flags: see `capture` in
real-vllm.sh. Only the standard library is used.
"""

from __future__ import annotations

import argparse
import json
import random
import socket
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

MODEL = "tiny"
VOCAB = 2046  # the ids of ordinary tokens end here: two control tokens follow
FIRST_ORDINARY = 4  # and four special tokens come before
END_OF_TURN = 2
END_OF_THINKING = 2047
BOTH_USAGE = {"include_usage": True, "continuous_usage_stats": True}
QUESTION = [{"role": "user", "content": "Tell me about the old bridge by the harbour."}]
MIXED_SCRIPTS = "速度 🚀 café скорость 🙂 समय"
# Characters that the tokenizer was not trained on: each takes several tokens.
UNSEEN_SCRIPTS = "☃ ქართული 𝄞 አማርኛ 🎼"


@dataclass
class Request:
    method: str
    path: str
    body: object = None  # JSON, or bytes sent as they are
    headers: dict[str, str] = field(default_factory=dict)

    def encode(self, host: str) -> bytes:
        payload = b""
        headers = {"Host": host, "Accept": "*/*", **self.headers}
        if self.body is not None:
            payload = self.body if isinstance(self.body, bytes) else json.dumps(self.body).encode()
            headers.setdefault("Content-Type", "application/json")
            headers["Content-Length"] = str(len(payload))
        lines = [f"{self.method} {self.path} HTTP/1.1"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        return ("\r\n".join(lines) + "\r\n\r\n").encode() + payload


class ResponseReader:
    """Collects a response byte for byte and knows when it is complete."""

    def __init__(self) -> None:
        self.raw = bytearray()

    @property
    def status(self) -> int:
        return int(self.raw.split(b" ", 2)[1])

    def complete(self) -> bool:
        head_end = self.raw.find(b"\r\n\r\n")
        if head_end < 0:
            return False
        head = self.raw[:head_end].lower().decode("latin-1")
        position = head_end + 4
        headers = dict(line.split(": ", 1) for line in head.split("\r\n")[1:])
        if headers.get("transfer-encoding") != "chunked":
            return len(self.raw) >= position + int(headers.get("content-length", 0))
        while True:
            line_end = self.raw.find(b"\r\n", position)
            if line_end < 0:
                return False
            size = int(self.raw[position:line_end], 16)
            position = line_end + 2 + size + 2
            if len(self.raw) < position:
                return False
            if size == 0:
                return True


class Capturer:
    def __init__(self, url: str, out: Path, suite: str, api_key: str | None) -> None:
        parts = urlsplit(url)
        self.address = (parts.hostname, parts.port or 80)
        self.suite = suite
        self.auth = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        version = self.json_body(Request("GET", "/version"))["version"]
        self.folder = out / version
        self.folder.mkdir(parents=True, exist_ok=True)
        self.manifest_path = self.folder / "manifest.json"
        self.manifest = {"vllm": version, "captures": {}}
        if self.manifest_path.exists():
            self.manifest = json.loads(self.manifest_path.read_text(encoding="utf-8"))
        for name, entry in list(self.manifest["captures"].items()):
            if entry["suite"] == suite:  # recorded by an earlier run
                (self.folder / f"{name}.http").unlink(missing_ok=True)
                del self.manifest["captures"][name]

    def exchange(self, request: Request, stop_after: bytes | None = None,
                 reader: ResponseReader | None = None) -> ResponseReader:
        """Send a request on a connection of its own; return its response.

        With stop_after the connection is closed as soon as those bytes appear. A
        reader that is passed in can be watched from another thread.
        """
        reader = reader or ResponseReader()
        with socket.create_connection(self.address, timeout=120) as connection:
            connection.sendall(request.encode(f"{self.address[0]}:{self.address[1]}"))
            while not reader.complete():
                data = connection.recv(65536)
                if not data:
                    break
                reader.raw += data
                if stop_after and stop_after in reader.raw:
                    break
        return reader

    def json_body(self, request: Request) -> dict:
        raw = self.exchange(request).raw
        return json.loads(raw[raw.index(b"\r\n\r\n") + 4 :])

    def max_model_len(self) -> int:
        models = self.json_body(Request("GET", "/v1/models", headers=self.auth))
        return models["data"][0]["max_model_len"]

    def save(self, name: str, request: Request, reader: ResponseReader, about: str) -> None:
        (self.folder / f"{name}.http").write_bytes(bytes(reader.raw))
        self.manifest["captures"][name] = {
            "suite": self.suite,
            "about": about,
            "status": reader.status,
            "bytes": len(reader.raw),
            "method": request.method,
            "path": request.path,
            "headers": request.headers,
            "body": printable_body(request.body),
        }
        print(f"{name}: {reader.status}, {len(reader.raw)} bytes")

    def capture(self, name: str, request: Request, about: str, stop_after: bytes | None = None) -> None:
        self.save(name, request, self.exchange(request, stop_after), about)

    def chat(self, name: str, about: str, stop_after: bytes | None = None, **fields: object) -> None:
        request = Request("POST", "/v1/chat/completions", chat_body(**fields), self.auth)
        self.capture(name, request, about, stop_after)

    def completion(self, name: str, about: str, **fields: object) -> None:
        request = Request("POST", "/v1/completions", completion_body(**fields), self.auth)
        self.capture(name, request, about)

    def finish(self) -> None:
        captures = self.manifest["captures"]
        self.manifest["captures"] = dict(sorted(captures.items()))
        text = json.dumps(self.manifest, indent=1, ensure_ascii=False) + "\n"
        self.manifest_path.write_text(text, encoding="utf-8")
        (self.folder / "README.md").write_text(readme(self.manifest), encoding="utf-8")


def printable_body(body: object) -> object:
    """The body as the manifest keeps it: text, or JSON with long arrays cut."""
    if isinstance(body, bytes):
        return body.decode("latin-1")
    if isinstance(body, dict):
        return {key: printable_body(value) for key, value in body.items()}
    if isinstance(body, list) and len(body) > 40:
        return f"[{', '.join(map(str, body[:4]))}, ... {len(body)} elements]"
    if isinstance(body, list):
        return [printable_body(value) for value in body]
    if isinstance(body, str) and len(body) > 200:
        return f"{body[:60]}... ({len(body)} characters)"
    return body


def chat_body(**fields: object) -> dict:
    body = {"model": MODEL, "messages": QUESTION, "stream": True, "max_tokens": 24,
            "temperature": 1.0, "seed": 11, "ignore_eos": True, **fields}
    return {key: value for key, value in body.items() if value is not None}


def completion_body(**fields: object) -> dict:
    body = {"model": MODEL, "prompt": "The old bridge", "stream": True, "max_tokens": 24,
            "temperature": 1.0, "seed": 11, "ignore_eos": True, **fields}
    return {key: value for key, value in body.items() if value is not None}


def random_prompt(seed: int, tokens: int) -> list[int]:
    rng = random.Random(seed)
    return [rng.randrange(FIRST_ORDINARY, VOCAB) for _ in range(tokens)]


def capture_default(c: Capturer) -> None:
    """Everything that a server with ordinary flags answers."""
    c.capture("metrics_fresh", Request("GET", "/metrics"), "before the first generation")
    capture_plain_endpoints(c)
    capture_chat(c)
    capture_completions(c)
    capture_errors(c)
    capture_load(c)


def capture_plain_endpoints(c: Capturer) -> None:
    c.capture("health", Request("GET", "/health"), "a healthy server")
    c.capture("version", Request("GET", "/version"), "")
    c.capture("models", Request("GET", "/v1/models"), "")
    c.capture("load", Request("GET", "/load"), "without --enable-server-load-tracking")
    c.capture("tokenize_prompt",
              Request("POST", "/tokenize", {"model": MODEL, "prompt": MIXED_SCRIPTS}), "")
    c.capture("tokenize_messages",
              Request("POST", "/tokenize", {"model": MODEL, "messages": QUESTION}),
              "the chat template and the generation prompt are counted")
    c.capture("tokenize_token_strs",
              Request("POST", "/tokenize", {"model": MODEL, "prompt": MIXED_SCRIPTS,
                                            "return_token_strs": True}), "")
    c.capture("detokenize",
              Request("POST", "/detokenize", {"model": MODEL, "tokens": [100, 500, 900, 1300]}), "")
    c.capture("reset_prefix_cache", Request("POST", "/reset_prefix_cache"),
              "no such route without VLLM_SERVER_DEV_MODE=1")


def capture_chat(c: Capturer) -> None:
    mixed_ids = c.json_body(
        Request("POST", "/tokenize", {"model": MODEL, "prompt": MIXED_SCRIPTS}))["tokens"]

    c.chat("chat_usage_continuous", "usage on every chunk and a last usage-only chunk",
           stream_options=BOTH_USAGE)
    c.chat("chat_usage_final", "usage on the last chunk only",
           stream_options={"include_usage": True})
    c.chat("chat_usage_both_off", "both options sent as false",
           stream_options={"include_usage": False, "continuous_usage_stats": False})
    c.chat("chat_usage_empty_options", "an empty stream_options object", stream_options={})
    c.chat("chat_usage_none", "no stream_options")
    c.chat("chat_usage_continuous_alone", "continuous_usage_stats without include_usage",
           stream_options={"continuous_usage_stats": True})
    c.chat("chat_token_ids", "return_token_ids without usage", return_token_ids=True)
    c.chat("chat_token_ids_usage", "return_token_ids and continuous usage",
           return_token_ids=True, stream_options=BOTH_USAGE)
    c.chat("chat_multibyte", "text of several scripts in whole-character tokens",
           allowed_token_ids=mixed_ids, max_tokens=40, stream_options=BOTH_USAGE)
    c.chat("chat_split_characters", "characters split over tokens, by a forced choice: the text "
           "of a character comes with its last token",
           structured_outputs={"choice": [UNSEEN_SCRIPTS]}, ignore_eos=False, max_tokens=120,
           return_token_ids=True, stream_options=BOTH_USAGE)
    c.chat("chat_ignore_eos", "ignore_eos with the end-of-turn token likely: empty deltas",
           allowed_token_ids=[END_OF_TURN, 500, 501], stream_options=BOTH_USAGE)
    c.chat("chat_stop_eos", "ended by the end-of-turn token", ignore_eos=False,
           allowed_token_ids=[END_OF_TURN, 500, 501, 502, 503], stream_options=BOTH_USAGE)
    c.chat("chat_stop_string", "ended by a stop string, which is held back",
           ignore_eos=None, stop=["e"], max_tokens=64, stream_options=BOTH_USAGE)
    c.chat("chat_stop_token_id", "ended by stop_token_ids", allowed_token_ids=[500, 501, 502, 503],
           stop_token_ids=[501], stream_options=BOTH_USAGE)
    c.chat("chat_one_token", "max_tokens 1", max_tokens=1, stream_options=BOTH_USAGE)
    c.chat("chat_stream_interval_4", "stream_interval 4 asked for in the request",
           stream_interval=4, stream_options=BOTH_USAGE)
    c.chat("chat_two_choices", "n 2", n=2, max_tokens=8, stream_options=BOTH_USAGE)
    c.chat("chat_logprobs", "top_logprobs 2", logprobs=True, top_logprobs=2, max_tokens=6,
           stream_options=BOTH_USAGE)
    c.chat("chat_greedy_loop", "temperature 0: this model's text falls into a loop",
           temperature=0, seed=None, max_tokens=96, stream_options={"include_usage": True})
    long_question = [{"role": "user", "content": "Walk over the bridge again. " * 60}]
    c.chat("chat_prefix_cold", "a prompt of more than one KV block, first time",
           messages=long_question, max_tokens=4, stream_options=BOTH_USAGE)
    c.chat("chat_prefix_cached", "the same prompt again: cached_tokens in the last usage",
           messages=long_question, max_tokens=4, stream_options=BOTH_USAGE)
    c.chat("chat_not_streamed", "stream false", stream=False)
    c.chat("chat_client_closed", "the client closed the connection after a few chunks",
           max_tokens=2000, stream_options=BOTH_USAGE, stop_after=b'"completion_tokens":8,')


def capture_completions(c: Capturer) -> None:
    c.completion("completion_usage_continuous", "usage on every chunk", stream_options=BOTH_USAGE)
    c.completion("completion_usage_final", "usage on the last chunk only",
                 stream_options={"include_usage": True})
    c.completion("completion_usage_none", "no stream_options")
    c.completion("completion_token_ids", "return_token_ids with a token-id prompt",
                 prompt=random_prompt(1, 12), return_token_ids=True, stream_options=BOTH_USAGE)
    c.completion("completion_two_prompts", "a list of prompts", prompt=["The old", "A new"],
                 max_tokens=4, stream_options=BOTH_USAGE)
    c.completion("completion_default_length", "no max_tokens", max_tokens=None,
                 stream_options=BOTH_USAGE)
    c.completion("completion_not_streamed", "stream false", stream=False)
    limit = c.max_model_len()
    c.completion("completion_cut_by_window", "10 tokens where 24 were asked for: prompt and "
                 "max_tokens together exceed the window, which is no error",
                 prompt=random_prompt(3, limit - 10), stream_options=BOTH_USAGE)


def capture_errors(c: Capturer) -> None:
    limit = c.max_model_len()
    too_long = [{"role": "user", "content": "bridge " * (limit + 10)}]
    far_too_long = [{"role": "user", "content": "bridge " * limit * 20}]

    c.chat("error_unknown_model", "", model="no-such-model")
    c.chat("error_context_too_long", "the prompt alone is longer than the window",
           messages=too_long)
    c.chat("error_context_far_too_long", "refused by its characters, without tokenising",
           messages=far_too_long)
    c.chat("error_max_tokens_too_large", "max_tokens alone exceeds the window", max_tokens=limit * 2)
    c.chat("error_max_tokens_zero", "", max_tokens=0)
    c.chat("error_min_tokens", "min_tokens above max_tokens", min_tokens=30)
    c.chat("error_bad_temperature", "", temperature=-1)
    c.chat("error_bad_stop", "five stop strings", stop=["a", "b", "c", "d", "e"])
    c.chat("error_missing_messages", "", messages=None)
    c.chat("error_stream_options_not_streamed", "stream_options with stream false",
           stream=False, stream_options=BOTH_USAGE)
    c.capture("error_bad_json", Request("POST", "/v1/chat/completions", b'{"model": "tiny", '), "")
    c.capture("error_content_type",
              Request("POST", "/v1/chat/completions", json.dumps(chat_body()).encode(),
                      {"Content-Type": "text/plain"}), "a body that is not called JSON")
    c.capture("error_unknown_route", Request("GET", "/v1/no-such-route"), "")
    c.capture("error_method", Request("GET", "/v1/chat/completions"), "")
    c.completion("error_prompt_fills_window", "a prompt of exactly max_model_len tokens",
                 prompt=random_prompt(2, limit), max_tokens=1)
    c.completion("error_unknown_token", "a token id outside the vocabulary",
                 prompt=[5, 10**6], max_tokens=1)


def capture_load(c: Capturer) -> None:
    """The metrics while some requests run and others wait for KV blocks."""

    def generate(seed: int) -> None:
        body = completion_body(prompt=random_prompt(100 + seed, 4000), max_tokens=400, seed=seed)
        c.exchange(Request("POST", "/v1/completions", body))

    workers = [threading.Thread(target=generate, args=(seed,)) for seed in range(8)]
    for worker in workers:
        worker.start()
    request = Request("GET", "/metrics")
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        reader = c.exchange(request)
        if gauge(reader.raw, "num_requests_running") > 1 and gauge(reader.raw, "num_requests_waiting") > 0:
            c.save("metrics_load", request, reader, "eight requests, too many for the KV cache")
            break
        time.sleep(0.05)
    for worker in workers:
        worker.join()
    time.sleep(1)  # the gauges follow the engine by a step
    c.capture("metrics_idle", request, "after the load")


def gauge(raw: bytes, name: str) -> float:
    prefix = f"vllm:{name}{{".encode()
    return sum(float(line.rsplit(b" ", 1)[1]) for line in raw.split(b"\n") if line.startswith(prefix))


def capture_guarded(c: Capturer) -> None:
    """What needs an API key, a reasoning parser or a dying engine."""
    wrong = {"Authorization": "Bearer wrong"}
    c.capture("error_no_key", Request("POST", "/v1/chat/completions", chat_body()),
              "no Authorization header")
    c.capture("error_wrong_key", Request("POST", "/v1/chat/completions", chat_body(), wrong), "")
    c.capture("error_no_key_models", Request("GET", "/v1/models"), "")
    c.capture("health_no_key", Request("GET", "/health"), "needs no key")
    c.capture("models_with_key", Request("GET", "/v1/models", headers=c.auth), "")
    thinking = [*range(500, 506), END_OF_THINKING]
    c.chat("chat_reasoning", "reasoning, then content", seed=3, allowed_token_ids=thinking,
           stream_options=BOTH_USAGE)
    c.chat("chat_reasoning_token_ids", "the same with token ids", seed=3,
           allowed_token_ids=thinking, return_token_ids=True, stream_options=BOTH_USAGE)
    c.chat("chat_reasoning_not_streamed", "stream false", seed=3, allowed_token_ids=thinking,
           stream=False)
    c.chat("chat_request_metrics", "--enable-per-request-metrics", stream_options=BOTH_USAGE)
    capture_engine_death(c)


def capture_engine_death(c: Capturer) -> None:
    """Kill the engine while it streams, by a seeded request with a split prefill."""
    victim = Request("POST", "/v1/chat/completions",
                     chat_body(max_tokens=4000, seed=None, stream_options=BOTH_USAGE), c.auth)
    poison = Request("POST", "/v1/completions",
                     completion_body(prompt=random_prompt(7, 4000), stream=False), c.auth)
    victim_reader = ResponseReader()
    worker = threading.Thread(target=c.exchange, args=(victim, None, victim_reader))
    worker.start()
    while worker.is_alive() and b'"completion_tokens":8,' not in victim_reader.raw:
        time.sleep(0.001)
    c.capture("error_engine_death", poison, "the request that the engine died of, not streamed")
    for name, request, about in [
        ("health_engine_dead", Request("GET", "/health"), "after the engine's death"),
        ("error_engine_dead", Request("POST", "/v1/chat/completions", chat_body(), c.auth),
         "a new request after the engine's death"),
    ]:
        try:
            c.capture(name, request, about)
        except OSError as problem:  # the server may be gone already
            print(f"{name}: {problem}")
    worker.join()
    c.save("chat_engine_death", victim, victim_reader,
           "the engine died in the middle of the stream")


SUITES = {"default": capture_default, "guarded": capture_guarded}


def readme(manifest: dict) -> str:
    lines = [
        f"# Raw responses of vLLM {manifest['vllm']}",
        "",
        "Recorded by `scripts/real-vllm.sh capture` from the CPU build of vLLM, which serves a tiny",
        "random-weight model on the loopback address. Each `NAME.http` is one whole response as it",
        "came from the socket: status line, headers, and the body in its chunked transfer encoding.",
        "`manifest.json` has the same list as below for programs. Long arrays and texts of a request",
        "are cut in both; `scripts/capture.py` makes them.",
        "",
        "The suites differ in the server's flags, which `scripts/real-vllm.sh` has: `default` is an",
        "ordinary server, `guarded` one with an API key, a reasoning parser, per-request metrics and",
        "split prefill.",
        "",
        "| File | Suite | Status | Bytes | Request | What it shows |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for name, entry in manifest["captures"].items():
        request = f"{entry['method']} {entry['path']}"
        if entry["headers"]:
            request += " " + json.dumps(entry["headers"])
        if entry["body"] is not None:
            body = entry["body"]
            request += " " + (body if isinstance(body, str) else json.dumps(body, ensure_ascii=False))
        request = request.replace("|", "\\|")
        lines.append(f"| `{name}.http` | {entry['suite']} | {entry['status']} | {entry['bytes']} "
                     f"| `{request}` | {entry['about']} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description="Record raw responses of a real vLLM server.")
    parser.add_argument("--url", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--api-key")
    parser.add_argument("suite", choices=SUITES)
    args = parser.parse_args()
    capturer = Capturer(args.url, args.out, args.suite, args.api_key)
    SUITES[args.suite](capturer)
    capturer.finish()


if __name__ == "__main__":
    main()
