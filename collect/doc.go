// Package collect measures a server and records what it observed as a run
// directory: it makes the plan, runs cell after cell by the steps of
// docs/method.md, and writes each cell when it has ended.
//
// Its subpackages: stream sends requests and records their events; server
// asks the server about itself; host describes the machine and redacts;
// prompt makes prompts of an exact length; simserver is a stand-in server.
//
// It must not compute a figure or decide a status, except "I did not send
// this cell, because …", and it must not know how runs are read or drawn.
package collect
