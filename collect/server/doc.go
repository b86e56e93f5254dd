// Package server asks an OpenAI-compatible server everything that a run
// needs to know about it beside the streamed answers themselves: which
// models it serves, its version, how many tokens a prompt has, its
// Prometheus metrics, and what these say about its KV cache. It also holds
// the rules that turn such answers into a plan: the default contexts and
// which cells cannot fit.
//
// Every answer is treated as hostile: bounded in size and time, and never
// trusted to be there. What was not answered is unknown, never 0.
//
// The package is the home of the Prometheus text parser. It must not know
// how anything is measured, must not stream, and must not write files.
package server
