// Package mdtext escapes foreign text for the places of a Markdown document
// (GitHub's flavour), and makes it visible: control characters and
// bidirectional overrides are written out.
//
// It must not know what the text is about.
package mdtext

import (
	"fmt"
	"strings"
	"unicode"
)

// Clean returns s as one line of visible text for any document: line breaks
// and tabs become spaces; other control characters, line separators and
// bidirectional controls are written as \u202e; bad UTF-8 becomes U+FFFD.
func Clean(s string) string {
	if printable(s) {
		return strings.TrimSpace(s)
	}
	var b strings.Builder
	for _, r := range strings.ToValidUTF8(s, "\uFFFD") {
		switch {
		case r == '\n' || r == '\t' || r == '\r':
			b.WriteByte(' ')
		case unicode.IsControl(r) || unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp, unicode.Co, unicode.Cs):
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
	}
	return strings.TrimSpace(b.String())
}

// printable reports whether s is nothing but visible ASCII and spaces, as
// nearly all text is.
func printable(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

// special are the characters that can begin markup inside a line.
const special = "\\`*_[]<>|~&$#"

// Inline escapes a line of text for a paragraph, a heading or a list item.
func Inline(s string) string { return escape(Clean(s), `\\`) }

// Cell escapes a line of text for a table cell. A backslash is written as an
// entity there: parsers of tables disagree about a backslash before a pipe.
func Cell(s string) string { return escape(Clean(s), "&#92;") }

func escape(s, backslash string) string {
	if !strings.ContainsAny(s, special) && (s == "" || !strings.Contains("+-=!", s[:1])) && !numbered(s) {
		return s // nothing in it, and nothing at its beginning, is markup
	}
	var b strings.Builder
	runes := []rune(s)
	for i, r := range runes {
		switch {
		case r == '\\':
			b.WriteString(backslash)
			continue
		case r == '_' && i > 0 && word(runes[i-1]) && i+1 < len(runes) && word(runes[i+1]):
			// Inside a word it is no markup, and names are full of them.
		case strings.ContainsRune(special, r), i == 0 && strings.ContainsRune("+-=!", r), (r == '.' || r == ')') && numbers(runes, i):
			b.WriteByte('\\')
		}
		b.WriteRune(r)
	}
	return b.String()
}

// numbered reports whether s begins as an item of a numbered list does.
func numbered(s string) bool {
	rest := strings.TrimLeft(s, "0123456789")
	return rest != s && (strings.HasPrefix(rest, ".") || strings.HasPrefix(rest, ")")) && (len(rest) == 1 || rest[1] == ' ')
}

func word(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }

// numbers reports whether the mark at i would make a numbered list of s:
// nothing but digits before it, a space or nothing after it.
func numbers(s []rune, i int) bool {
	return i > 0 && strings.Trim(string(s[:i]), "0123456789") == "" && (i+1 == len(s) || s[i+1] == ' ')
}

// Fence returns s as a fenced code block in the given language. The fence is
// longer than any run of backticks in s.
func Fence(language, s string) string {
	longest, run := 2, 0
	for _, r := range s {
		if r != '`' {
			run = 0
			continue
		}
		run++
		longest = max(longest, run)
	}
	fence := strings.Repeat("`", longest+1)
	return fence + language + "\n" + strings.TrimSuffix(s, "\n") + "\n" + fence
}

// Quote returns Markdown text as a block quotation, which also ends whatever
// the text leaves open.
func Quote(s string) string {
	var b strings.Builder
	for line := range strings.Lines(strings.TrimSpace(s)) {
		b.WriteString(strings.TrimRight("> "+strings.TrimRight(line, "\r\n"), " "))
		b.WriteByte('\n')
	}
	return strings.TrimSuffix(b.String(), "\n")
}
