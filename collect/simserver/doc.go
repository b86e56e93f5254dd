// Package simserver is a stand-in for a vLLM server whose truth is known:
// what it will send, how fast, and when each byte was written. It speaks
// vLLM's HTTP interface (chat and text completions, /metrics, /v1/models,
// /tokenize, …) in the bytes that vLLM writes, runs a scheduler with
// sequence slots, a KV-block pool, a prefix cache and preemption behind it,
// and misbehaves on demand (Fault). Any client can be tested with it:
//
//	srv, err := simserver.New(simserver.Config{Seed: 1})
//	…
//	ts := httptest.NewServer(srv)
//	defer ts.Close()
//
// With one seed the text, the tokens of each chunk and the planned step
// times are always the same; when the bytes leave depends on the machine and
// is reported through Config.Truth.
//
// Known gaps: no log-probabilities, beam search, stop strings or images; a
// request that asks for log-probabilities is refused, stop strings are
// ignored.
//
// The package must not know who its client is, and nothing of run logs.
package simserver
