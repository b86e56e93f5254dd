package render

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// diffColumns is the width of the text form.
const diffColumns = 100

// DiffText returns a comparison as text of at most 100 columns. Its first
// eight lines are the whole answer, its last is for programs
// (compare.Counts.Line). With colour, verdicts have one beside their word.
func DiffText(c Comparison, colour bool) []byte {
	v := newDiffView(c, nil)
	t := &diffText{colour: colour}
	t.line(v.Heading)
	t.opening(v.Opening, v.Several)
	for i := range v.Sides {
		s := &v.Sides[i]
		if v.Several {
			t.line("")
			t.line(s.Heading)
			t.opening(s.Opening, false)
		}
		t.side(s)
	}
	t.line("")
	t.WriteString(v.Line + "\n")
	return []byte(t.String())
}

type diffText struct {
	strings.Builder
	colour bool
}

// line writes one line, cut where it would be too long.
func (t *diffText) line(s string) {
	t.WriteString(clip(strings.TrimRight(s, " "), diffColumns) + "\n")
}

// paragraph writes a text behind a name, in as many lines as it takes.
func (t *diffText) paragraph(name, text string, indent int) {
	line := fmt.Sprintf("%-*s", indent, name)
	empty := true
	for _, word := range strings.Fields(text) {
		if !empty && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > diffColumns {
			t.line(line)
			line, empty = strings.Repeat(" ", indent), true
		}
		if !empty {
			line += " "
		}
		line, empty = line+word, false
	}
	t.line(line)
}

// opening writes each line as one where it must be, else as many as it takes.
func (t *diffText) opening(lines []diffLine, one bool) {
	const indent = 14
	for _, l := range lines {
		if one {
			t.line(fmt.Sprintf("%-*s%s", indent, l.Name, l.Text))
		} else {
			t.paragraph(l.Name, l.Text, indent)
		}
	}
}

func (t *diffText) side(s *diffSide) {
	if len(s.Findings)+len(s.Flags)+len(s.Statuses) > 0 {
		t.line("")
	}
	for _, f := range s.Findings {
		t.paragraph(f.Outcome, f.Text, 16)
	}
	for _, f := range s.Flags {
		t.paragraph("launch flag", fmt.Sprintf("%s: %s → %s", f.Name, f.A, f.B), 16)
	}
	for _, r := range s.Statuses {
		t.paragraph("status", fmt.Sprintf("%s %s × %s: %s → %s, %s", r.Phase, r.Context, r.Concurrency, r.A, r.B, r.Text), 16)
	}
	for i := range s.Metrics {
		m := &s.Metrics[i]
		rows := m.Rows
		if !m.Gates { // the table is in the other forms
			rows = nil
			for _, r := range m.Rows {
				if r.Context == "whole run" || r.Tone == worseTone || r.Tone == goodTone {
					rows = append(rows, r)
				}
			}
		}
		if len(rows) == 0 {
			continue
		}
		t.line("")
		t.paragraph(m.Title+":", m.Rule, len(m.Title)+2)
		if m.Why != "" {
			t.paragraph("", m.Why, 2)
		}
		t.line(diffTableLine("context", "conc", "A", "B", "change [95 % interval]", "vs run", "verdict"))
		for _, r := range rows {
			t.row(&r)
		}
	}
}

func diffTableLine(context, concurrency, a, b, change, against, verdict string) string {
	return fmt.Sprintf("%-9s %4s %11s %11s  %-26s %8s  %s", context, concurrency, a, b, change, against, verdict)
}

func (t *diffText) row(r *diffRow) {
	line := clip(diffTableLine(r.Context, r.Concurrency, r.A, r.B, r.Change, r.Against, r.Verdict), diffColumns)
	if before, ok := strings.CutSuffix(line, r.Verdict); ok && t.colour {
		line = before + paint(r.Tone, r.Verdict)
	}
	t.WriteString(line + "\n")
	if r.Reason != "" {
		t.paragraph("", r.Reason, 12)
	}
}

// paint colours a word for a terminal.
func paint(of tone, s string) string {
	code := map[tone]string{worseTone: "33", goodTone: "36", faintTone: "2"}[of] // yellow and cyan: told apart also by the colour-blind
	if code == "" {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}
