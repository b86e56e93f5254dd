// Package host describes the machine: its GPUs or CPU, the process that
// serves, and samples of power, clocks and load while a run goes on. It is
// also the home of redaction: nothing that came from a command line, an
// environment, a path or a foreign error text is written anywhere before it
// went through a Redactor.
//
// A sensor that is not there, or that says "[N/A]", gives no value, never 0.
// The package must not know how anything is measured, must not talk to the
// server, and never reports the machine's or the user's name.
package host
