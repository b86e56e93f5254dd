package runlog

import (
	"cmp"
	"math"
	"unicode/utf8"
)

// Limits of a run log. They are far above what a run needs and keep every
// sum of times and tokens exact in an int64 and in a float64.
const (
	MaxRows       = 1 << 24 // rows in one Parquet file
	MaxTimeUs     = 1 << 50 // microseconds since the start of the run: 35 years
	MaxErrorRunes = 500     // code points in Event.Error and Event.FinishReason

	maxNameBytes = 100 // length of a sample's name
)

// Check reports the first row that breaks a rule of the format as a
// *FormatError whose path is Key.File(), or nil. The writer and the reader
// both apply it, so that what was written can be read.
//
// The rules, for the rows of one request: sent is the first row and only
// the first; headers, if there is one, is the second; nothing follows done,
// error or cancelled; seq counts from 0 without gaps; t_us never decreases;
// a row that shares a read with the one before it shares its time. Rows are
// sorted by stream, request, seq. Numbers are in range, and a value stands
// only on rows of a kind that can have it.
func (e *Events) Check() error {
	if err := e.check(); err != nil {
		return err.in(e.Key.File())
	}
	return nil
}

func (e *Events) check() *damage {
	if err := e.Key.check(); err != nil {
		return err
	}
	if err := e.checkShape(); err != nil {
		return err
	}
	valid := e.textsAreValid()
	for i := range e.Kind {
		if valid && i > 0 && e.isOrdinary(i) {
			continue
		}
		if err := e.checkOrder(i); err != nil {
			return err
		}
		if err := e.checkValues(i, valid); err != nil {
			return err
		}
	}
	return nil
}

// isOrdinary reports that row i is a chunk after another of its request and
// keeps every rule, as nearly all rows do. Where it says no, the rules have to
// be looked at one by one. Texts must be valid.
func (e *Events) isOrdinary(i int) bool {
	t, before := e.TUs[i], e.TUs[i-1]
	return e.Kind[i] == KindChunk && e.Kind[i-1] == KindChunk &&
		e.Stream[i] == e.Stream[i-1] && e.Request[i] == e.Request[i-1] && e.Seq[i] == e.Seq[i-1]+1 &&
		t >= before && t <= MaxTimeUs && (!e.SameRead[i] || t == before) &&
		min(e.Tokens[i], e.PromptTokens[i], e.CachedTokens[i], e.CompletionTokens[i]) >= Unknown && e.Status[i] == Unknown &&
		int(e.Channel[i]) < len(channelNames) && (e.HasText[i] || e.TextEnd[i] == e.TextEnd[i-1]) &&
		e.FinishReason[i] == "" && e.Error[i] == ""
}

// textsAreValid reports whether the texts of all rows are valid UTF-8: all
// together are, and no row ends within a character. That is far quicker than
// to look at each.
func (e *Events) textsAreValid() bool {
	if !utf8.Valid(e.Text) {
		return false
	}
	for _, end := range e.TextEnd {
		if end < len(e.Text) && !utf8.RuneStart(e.Text[end]) {
			return false
		}
	}
	return true
}

// check reports a key that names no possible file.
func (k Key) check() *damage {
	switch k.Phase {
	case PhaseWarmup, PhasePrefill:
		if k.Concurrency != 1 {
			return damagef("concurrency: got %d, want 1 in phase %s", k.Concurrency, k.Phase)
		}
	case PhaseDecode:
		if k.Concurrency < 1 {
			return damagef("concurrency: got %d, want 1 or more", k.Concurrency)
		}
	default:
		return damagef("phase: got %q, want %s", k.Phase, oneOf(PhaseWarmup, PhasePrefill, PhaseDecode))
	}
	if k.ContextTokens < 0 {
		return damagef("context_tokens: got %d, want 0 or more", k.ContextTokens)
	}
	return nil
}

// checkShape reports columns that do not fit together.
func (e *Events) checkShape() *damage {
	n := len(e.Kind)
	if n > MaxRows {
		return damagef("got %d rows, want %d at most", n, MaxRows)
	}
	for _, c := range []struct {
		name string
		len  int
	}{
		{"stream", len(e.Stream)}, {"request", len(e.Request)}, {"seq", len(e.Seq)}, {"t_us", len(e.TUs)},
		{"same_read", len(e.SameRead)}, {"tokens", len(e.Tokens)}, {"channel", len(e.Channel)},
		{"text", len(e.HasText)}, {"text ends", len(e.TextEnd)}, {"finish_reason", len(e.FinishReason)},
		{"prompt_tokens", len(e.PromptTokens)}, {"cached_tokens", len(e.CachedTokens)},
		{"completion_tokens", len(e.CompletionTokens)}, {"status", len(e.Status)}, {"error", len(e.Error)},
	} {
		if c.len != n {
			return damagef("column %q: got %d rows, want %d", c.name, c.len, n)
		}
	}
	end := 0
	for i, next := range e.TextEnd {
		if next < end || next > len(e.Text) {
			return rowf(i, "text ends at byte %d, want %d to %d", next, end, len(e.Text))
		}
		end = next
	}
	if end != len(e.Text) {
		return damagef("column \"text\": got %d bytes, want %d", len(e.Text), end)
	}
	return nil
}

// checkOrder holds row i against the row before it.
func (e *Events) checkOrder(i int) *damage {
	switch {
	case e.Stream[i] < 0 || e.Stream[i] >= e.Key.Concurrency:
		return rowf(i, "stream: got %d, want 0 to %d", e.Stream[i], e.Key.Concurrency-1)
	case e.Request[i] < 0:
		return rowf(i, "request: got %d, want 0 or more", e.Request[i])
	case e.Kind[i] == 0 || int(e.Kind[i]) >= len(kindNames):
		return rowf(i, "kind: got %s, want %s", e.Kind[i], oneOf(kindNames[1:]...))
	case e.TUs[i] < 0 || e.TUs[i] > MaxTimeUs:
		return rowf(i, "t_us: got %d, want 0 to %d", e.TUs[i], int64(MaxTimeUs))
	}
	if i > 0 {
		switch c := cmp.Or(cmp.Compare(e.Stream[i], e.Stream[i-1]), cmp.Compare(e.Request[i], e.Request[i-1])); {
		case c < 0:
			return rowf(i, "stream %d, request %d comes after stream %d, request %d",
				e.Stream[i], e.Request[i], e.Stream[i-1], e.Request[i-1])
		case c == 0:
			return e.checkNext(i)
		}
	}
	switch {
	case e.Seq[i] != 0:
		return rowf(i, "seq: got %d, want 0 in the first row of a request", e.Seq[i])
	case e.Kind[i] != KindSent:
		return rowf(i, "kind: got %s, want sent in the first row of a request", e.Kind[i])
	case e.SameRead[i]:
		return rowf(i, "same_read: got true, want false in the first row of a request")
	}
	return nil
}

// checkNext holds row i against the row before it, of the same request.
func (e *Events) checkNext(i int) *damage {
	last := e.Kind[i-1]
	switch {
	case e.Seq[i] != e.Seq[i-1]+1:
		return rowf(i, "seq: got %d after %d, want %d", e.Seq[i], e.Seq[i-1], e.Seq[i-1]+1)
	case last.Ends():
		return rowf(i, "kind: got %s after %s, want no more rows of the request", e.Kind[i], last)
	case e.Kind[i] == KindSent:
		return rowf(i, "kind: got a second sent in one request")
	case e.Kind[i] == KindHeaders && last != KindSent:
		return rowf(i, "kind: got headers after %s, want it right after sent", last)
	case e.TUs[i] < e.TUs[i-1]:
		return rowf(i, "t_us went back from %d to %d", e.TUs[i-1], e.TUs[i])
	case e.SameRead[i] && last == KindSent:
		return rowf(i, "same_read: got true after sent, want false: nothing was read before")
	case e.SameRead[i] && e.TUs[i] != e.TUs[i-1]:
		return rowf(i, "t_us: got %d, want %d as in the row that same_read refers to", e.TUs[i], e.TUs[i-1])
	}
	return nil
}

// checkValues reports a value of row i that is out of range or that a row
// of its kind can't have. validText says that its text is valid UTF-8; else
// it is looked at.
func (e *Events) checkValues(i int, validText bool) *damage {
	kind := e.Kind[i]
	tokens, prompt, cached, completion := e.Tokens[i], e.PromptTokens[i], e.CachedTokens[i], e.CompletionTokens[i]
	delivers := kind == KindChunk || kind == KindUsage
	if min(tokens, prompt, cached, completion) < Unknown || !delivers && max(tokens, prompt, cached, completion) > Unknown {
		for _, c := range []struct {
			name  string
			value int32
		}{
			{"tokens", tokens}, {"prompt_tokens", prompt}, {"cached_tokens", cached}, {"completion_tokens", completion},
		} {
			switch {
			case c.value < Unknown:
				return rowf(i, "%s: got %d, want 0 or more, or null", c.name, c.value)
			case c.value != Unknown && !delivers:
				return rowf(i, "%s: got %d, want null in a row of kind %s", c.name, c.value, kind)
			}
		}
	}
	switch status := e.Status[i]; {
	case status == Unknown:
	case kind != KindHeaders && kind != KindError:
		return rowf(i, "status: got %d, want null in a row of kind %s", status, kind)
	case status < 100 || status > 999:
		return rowf(i, "status: got %d, want 100 to 999, or null", status)
	}
	if int(e.Channel[i]) >= len(channelNames) {
		return rowf(i, "channel: got %s, want %s, or null", e.Channel[i], oneOf(channelNames[1:]...))
	}
	text := e.TextAt(i)
	if kind != KindChunk {
		switch {
		case e.Channel[i] != ChannelNone:
			return rowf(i, "channel: got %s, want null in a row of kind %s", e.Channel[i], kind)
		case e.HasText[i]:
			return rowf(i, "text: got %q, want null in a row of kind %s", clip(string(text)), kind)
		case e.FinishReason[i] != "":
			return rowf(i, "finish_reason: got %q, want null in a row of kind %s", clip(e.FinishReason[i]), kind)
		}
	}
	switch {
	case !e.HasText[i] && len(text) > 0:
		return rowf(i, "text: got %d bytes in a row that has no text", len(text))
	case !validText && !utf8.Valid(text):
		return rowf(i, "text: got %q, want valid UTF-8", clip(string(text)))
	}
	if e.Error[i] != "" && kind != KindError && kind != KindCancelled {
		return rowf(i, "error: got %q, want null in a row of kind %s", clip(e.Error[i]), kind)
	}
	if err := checkForeign("finish_reason", i, e.FinishReason[i]); err != nil {
		return err
	}
	return checkForeign("error", i, e.Error[i])
}

// checkForeign reports a short text that is too long or not UTF-8.
func checkForeign(column string, i int, s string) *damage {
	switch {
	case s == "":
	case !utf8.ValidString(s):
		return rowf(i, "%s: got %q, want valid UTF-8", column, clip(s))
	case len(s) > MaxErrorRunes && utf8.RuneCountInString(s) > MaxErrorRunes:
		return rowf(i, "%s: got %d characters, want %d at most", column, utf8.RuneCountInString(s), MaxErrorRunes)
	}
	return nil
}

// clip shortens foreign text for an error message.
func clip(s string) string {
	const most = 60
	if len(s) > most {
		return s[:most] + "…"
	}
	return s
}

// checkSamples reports the first sample that breaks a rule of the format.
func checkSamples(samples []Sample) *damage {
	if len(samples) > MaxRows {
		return damagef("got %d rows, want %d at most", len(samples), MaxRows)
	}
	for i, s := range samples {
		switch {
		case s.TUs < 0 || s.TUs > MaxTimeUs:
			return rowf(i, "t_us: got %d, want 0 to %d", s.TUs, int64(MaxTimeUs))
		case s.Source != SourceServer && s.Source != SourceGPU && s.Source != SourceHost && s.Source != SourceClient:
			return rowf(i, "source: got %q, want %s", clip(string(s.Source)), oneOf(SourceServer, SourceGPU, SourceHost, SourceClient))
		case !isSampleName(s.Name):
			return rowf(i, "name: got %q, want 1 to %d of a-z, 0-9 and _", clip(s.Name), maxNameBytes)
		case s.Index < 0:
			return rowf(i, "index: got %d, want 0 or more", s.Index)
		case math.IsNaN(s.Value) || math.IsInf(s.Value, 0):
			return rowf(i, "value: got %v, want a finite number", s.Value)
		case i > 0 && compareSamples(samples[i-1], s) > 0:
			return rowf(i, "got %s %s %d at %d after %s %s %d at %d, want rows sorted by source, name, index, t_us",
				s.Source, s.Name, s.Index, s.TUs, samples[i-1].Source, samples[i-1].Name, samples[i-1].Index, samples[i-1].TUs)
		}
	}
	return nil
}

// isSampleName reports whether s can be the name of a sample.
func isSampleName(s string) bool {
	for _, c := range []byte(s) {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '_' {
			return false
		}
	}
	return s != "" && len(s) <= maxNameBytes
}

// compareSamples orders samples as they stand in a file: every series in
// one piece, in the order of time.
func compareSamples(a, b Sample) int {
	return cmp.Or(cmp.Compare(a.Source, b.Source), cmp.Compare(a.Name, b.Name),
		cmp.Compare(a.Index, b.Index), cmp.Compare(a.TUs, b.TUs))
}
