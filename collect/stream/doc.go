// Package stream sends chat completions and records what comes back, event
// by event, with the time at which the data that completed each event
// arrived. It is the measuring path: while a request runs it reads, cuts the
// bytes into server-sent events and copies them into memory, and nothing
// else; JSON is decoded afterwards (Decode), except for the few events that
// must be looked at to see a first output or an error.
//
// It speaks HTTP/1.1 itself, because the standard client hides which read
// returned which bytes, and so the time at which they arrived.
//
// It must not know about cells, plans or files, and it computes no figure.
package stream
