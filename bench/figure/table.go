package figure

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// columns of a table, the same as text and as Markdown.
var columns = [...]string{"Figure", "Value", "Spread", "Peer", "Ratio", "Target", "Met"}

// cells returns a figure as a row of a table.
func (f *Figure) cells() []string {
	value := func(v float64) string { return strings.TrimSpace(Number(v) + " " + f.Unit) }
	row := []string{f.Name, value(f.Value), "", "", "", "", ""}
	if f.Samples > 1 {
		row[2] = fmt.Sprintf("%s–%s (%d)", Number(f.Min), Number(f.Max), f.Samples)
	}
	if p := f.Peer; p != nil {
		row[3] = p.Name + ": " + value(p.Value)
		row[4] = Number(p.Ratio)
		if p.Better {
			row[4] += " × better"
		}
		if f.Samples > 1 && p.RatioMin != p.RatioMax {
			row[4] += fmt.Sprintf(" (%s–%s)", Number(p.RatioMin), Number(p.RatioMax))
		}
	}
	if g := f.Goal; g != nil {
		row[5] = g.Sign + " " + value(g.Limit)
		if g.OfRatio {
			if row[5] = "ratio " + g.Sign + " " + Number(g.Limit); f.Peer != nil && f.Peer.Better {
				row[5] += " ×"
			}
		}
		row[6] = "no"
		if f.Met != nil && *f.Met {
			row[6] = "yes"
		}
	}
	return row
}

// Number writes a measured number with three significant digits, whole
// numbers of more digits in full, with thousands commas.
func Number(v float64) string {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return "unknown"
	}
	if math.Abs(v) < 999.5 {
		s := strconv.FormatFloat(v, 'g', 3, 64)
		if strings.Contains(s, "e") {
			s = strconv.FormatFloat(v, 'f', -1, 64)
			if len(s) > 8 {
				s = strconv.FormatFloat(v, 'e', 2, 64)
			}
		}
		return s
	}
	s := strconv.FormatFloat(math.Abs(v), 'f', 0, 64)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	if v < 0 {
		s = "−" + s
	}
	return s
}

// topics returns the figures by topic, in the order in which topics came.
func (r *Report) topics() (names []string, byTopic map[string][]*Figure) {
	byTopic = map[string][]*Figure{}
	for i := range r.Figures {
		f := &r.Figures[i]
		if byTopic[f.Topic] == nil {
			names = append(names, f.Topic)
		}
		byTopic[f.Topic] = append(byTopic[f.Topic], f)
	}
	return names, byTopic
}

// Text returns the report as aligned text.
func (r *Report) Text() string {
	names, byTopic := r.topics()
	width := make([]int, len(columns))
	measure := func(row []string) {
		for i, s := range row {
			width[i] = max(width[i], utf8.RuneCountInString(s))
		}
	}
	measure(columns[:])
	for i := range r.Figures {
		measure(r.Figures[i].cells())
	}
	var b strings.Builder
	print := func(row []string) {
		var l strings.Builder
		for i, s := range row {
			l.WriteString(s + strings.Repeat(" ", width[i]-utf8.RuneCountInString(s)+2))
		}
		b.WriteString(strings.TrimRight(l.String(), " ") + "\n")
	}
	for _, name := range names {
		fmt.Fprintf(&b, "%s (load before: %s)\n", name, loads(byTopic[name]))
		print(columns[:])
		for _, f := range byTopic[name] {
			print(f.cells())
		}
		b.WriteString("\n")
	}
	b.WriteString(r.Machine.String() + "\n")
	return b.String()
}

// Markdown returns the report as Markdown tables, one for each topic, with
// the command that gives it again.
func (r *Report) Markdown() string {
	escape := strings.NewReplacer("|", `\|`, "\n", " ").Replace
	names, byTopic := r.topics()
	var b strings.Builder
	fmt.Fprintf(&b, "Measured on: %s.\n", escape(r.Machine.String()))
	for _, name := range names {
		figures := byTopic[name]
		fmt.Fprintf(&b, "\n### %s\n\n", escape(name))
		fmt.Fprintf(&b, "`%s`, load average before: %s.\n\n", strings.Join(commands(figures), "`, `"), loads(figures))
		b.WriteString("| " + strings.Join(columns[:], " | ") + " |\n")
		b.WriteString(strings.Repeat("| --- ", len(columns)) + "|\n")
		for _, f := range figures {
			row := f.cells()
			for i := range row {
				row[i] = escape(row[i])
			}
			b.WriteString("| " + strings.Join(row, " | ") + " |\n")
		}
		for _, f := range figures {
			if f.Notes != "" {
				fmt.Fprintf(&b, "\n- %s: %s", escape(f.Name), escape(f.Notes))
			}
		}
		if slices.ContainsFunc(figures, func(f *Figure) bool { return f.Notes != "" }) {
			b.WriteString("\n")
		}
	}
	return b.String()
}

// commands returns the different commands of some figures.
func commands(figures []*Figure) (list []string) {
	for _, f := range figures {
		if !slices.Contains(list, f.Command) {
			list = append(list, f.Command)
		}
	}
	return list
}

// loads returns the range of the load averages before some figures.
func loads(figures []*Figure) string {
	low, high := figures[0].LoadBefore, figures[0].LoadBefore
	for _, f := range figures {
		low, high = min(low, f.LoadBefore), max(high, f.LoadBefore)
	}
	switch {
	case low < 0:
		return "unknown"
	case low == high:
		return Number(low)
	}
	return Number(low) + "–" + Number(high)
}

// Between returns doc with what stands between two marker lines replaced.
// Each must stand in doc once.
func Between(doc, begin, end, content string) (string, error) {
	head, rest, ok1 := strings.Cut(doc, begin+"\n")
	_, tail, ok2 := strings.Cut(rest, end+"\n")
	if !ok1 || !ok2 || strings.Contains(tail, begin) {
		return "", fmt.Errorf("want one line %q and after it one line %q", begin, end)
	}
	return head + begin + "\n" + content + end + "\n" + tail, nil
}
