// Package browsertest looks at built pages in a real browser. It has tests
// only, and is a module of its own so that what drives the browser stays out
// of the program's. It must not know how pages are made: it builds a site of
// runs that it writes itself, and judges what a reader gets.
package browsertest
