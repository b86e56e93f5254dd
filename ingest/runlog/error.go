package runlog

import (
	"fmt"
	"strings"
)

// A FormatError reports something that breaks a rule of the format: which
// file, where in it, what was got and what was wanted.
type FormatError struct {
	Path string // the file as the caller knows it, or relative to the run directory
	Row  int64  // row index from 0; -1 when the error is not about one row
	Msg  string // what is wrong, without the position
}

// Error returns "path: row 7: message", or "path: message".
func (e *FormatError) Error() string {
	if e.Row < 0 {
		return e.Path + ": " + e.Msg
	}
	return fmt.Sprintf("%s: row %d: %s", e.Path, e.Row, e.Msg)
}

// A damage is a FormatError that does not know its path yet: what the
// functions that look at bytes and rows return.
type damage struct {
	row int64
	msg string
}

func (d *damage) Error() string { return d.in("file").Error() }

// in places a damage in the file at path.
func (d *damage) in(path string) error {
	return &FormatError{Path: path, Row: d.row, Msg: d.msg}
}

// damagef returns a damage of the whole file.
func damagef(format string, args ...any) *damage {
	return &damage{row: -1, msg: fmt.Sprintf(format, args...)}
}

// rowf returns a damage of one row.
func rowf[N int | int64](row N, format string, args ...any) *damage {
	return &damage{row: int64(row), msg: fmt.Sprintf(format, args...)}
}

// oneOf lists the allowed words of an enumeration for an error message.
func oneOf[S ~string](words ...S) string {
	s := make([]string, len(words))
	for i, w := range words {
		s[i] = string(w)
	}
	return "one of " + strings.Join(s, ", ")
}
