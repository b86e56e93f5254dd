// Package shell writes command lines as a person would type them into a
// POSIX shell, for the page to show.
//
// It runs nothing, and it must not redact: that is done before anything is
// recorded.
package shell

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// redacted is what stands in the log where a secret was. It is shown as it
// is: nobody can run it anyway.
const redacted = "<redacted>"

var (
	plain      = regexp.MustCompile(`^[A-Za-z0-9_@%+=:,./-]+$`)
	home       = regexp.MustCompile(`\$HOME\b`)
	assignment = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*=`)
)

// Parts returns the words of a Line in parts that are pleasant to break
// between: what stands before the first flag, then each flag with its
// values. Joined by spaces they are the Line; nil when that is empty.
func Parts(args []string, environment map[string]string) []string {
	var parts []string
	for _, w := range lineWords(args, environment) {
		if len(parts) == 0 || strings.HasPrefix(w, "-") {
			parts = append(parts, w)
		} else {
			parts[len(parts)-1] += " " + w
		}
	}
	return parts
}

// Line returns args as one line, with the environment's variables in front
// as "env NAME=value …", sorted by name. Variables that args itself sets by
// way of a leading env are not repeated. A single argument with spaces is
// taken for a whole command line and returned as it is. The result has no
// control characters and no line breaks; it is empty when args is.
func Line(args []string, environment map[string]string) string {
	return strings.Join(lineWords(args, environment), " ")
}

func lineWords(args []string, environment map[string]string) []string {
	if len(args) == 0 {
		return nil
	}
	if len(args) == 1 && strings.ContainsAny(args[0], " \t") && !hasControl(args[0]) && len(environment) == 0 {
		return args
	}
	var set, words []string
	if args[0] == "env" {
		n := 1
		for n < len(args) && assignment.MatchString(args[n]) {
			n++
		}
		set, args = args[1:n], args[n:]
	}
	names := make([]string, 0, len(environment))
	for name := range environment {
		if !slices.ContainsFunc(set, func(s string) bool { return strings.HasPrefix(s, name+"=") }) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, s := range set {
		name, value, _ := strings.Cut(s, "=")
		words = append(words, name+"="+quoteValue(value))
	}
	for _, name := range names {
		words = append(words, Quote(name)+"="+quoteValue(environment[name]))
	}
	if len(words) > 0 {
		words = append([]string{"env"}, words...)
	}
	for _, a := range args {
		words = append(words, Quote(a))
	}
	return words
}

func quoteValue(v string) string {
	if v == "" {
		return ""
	}
	return Quote(v)
}

// Quote returns s as one word of a shell command. $HOME keeps its meaning,
// since the collector writes it for home directories.
func Quote(s string) string {
	switch {
	case s == "":
		return "''"
	case plain.MatchString(strings.ReplaceAll(s, redacted, "x")):
		return s
	case hasControl(s):
		return quoteControl(s)
	case home.MatchString(s):
		return quoteHome(s)
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

func quoteHome(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	last := 0
	escape := strings.NewReplacer(`\`, `\\`, `"`, `\"`, "`", "\\`", `$`, `\$`)
	for _, m := range home.FindAllStringIndex(s, -1) {
		escape.WriteString(&b, s[last:m[0]])
		b.WriteString("$HOME")
		last = m[1]
	}
	escape.WriteString(&b, s[last:])
	b.WriteByte('"')
	return b.String()
}

// quoteControl uses the $'…' form of bash and zsh, the only one that can
// show such characters without sending them to a terminal.
func quoteControl(s string) string {
	var b strings.Builder
	b.WriteString("$'")
	for _, r := range s {
		switch {
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case r == '\'' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case control(r) && r > 0xffff:
			fmt.Fprintf(&b, `\U%08x`, r)
		case control(r):
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('\'')
	return b.String()
}

func hasControl(s string) bool { return strings.ContainsFunc(s, control) }

// control reports whether a character has no look of its own or changes how
// its neighbours look: C0 and C1, line separators, bidirectional controls.
func control(r rune) bool {
	return unicode.IsControl(r) || unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp)
}
