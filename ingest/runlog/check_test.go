package runlog

import (
	"math"
	"strings"
	"testing"
)

func TestRowRules(t *testing.T) {
	// good returns two requests of one stream, with every kind that a rule is about.
	good := func() *Events {
		ev := &Events{Key: Key{PhaseDecode, 8192, 2}}
		row := func(stream, request, seq int32, kind Kind, t int64, change func(*Event)) {
			e := NewEvent(kind, t)
			e.Stream, e.Request, e.Seq = stream, request, seq
			if change != nil {
				change(&e)
			}
			ev.Append(e)
		}
		row(0, 0, 0, KindSent, 100, nil)
		row(0, 0, 1, KindHeaders, 200, func(e *Event) { e.Status = 200 })
		row(0, 0, 2, KindChunk, 300, func(e *Event) { e.HasText, e.Text, e.Channel, e.Tokens = true, "hé", ChannelContent, 1 })
		row(0, 0, 3, KindChunk, 300, func(e *Event) { e.SameRead = true })
		row(0, 0, 4, KindUsage, 400, func(e *Event) { e.PromptTokens, e.CompletionTokens = 8192, 1 })
		row(0, 0, 5, KindDone, 500, nil)
		row(0, 2, 0, KindSent, 450, nil) // number 1 was never sent; the clock may go back between requests
		row(0, 2, 1, KindError, 900, func(e *Event) { e.Status, e.Error = 503, "busy" })
		row(1, 0, 0, KindSent, 50, nil)
		row(1, 0, 1, KindCancelled, 60, nil)
		row(1, 1, 0, KindSent, 70, nil) // never finished
		return ev
	}
	for _, tt := range []struct {
		name   string
		change func(e *Events)
		want   string
	}{
		{"all rules kept", func(e *Events) {}, ""},
		{"no rows", func(e *Events) { *e = Events{Key: e.Key} }, ""},
		{"unknown phase", func(e *Events) { e.Key.Phase = "cooldown" }, `phase: got "cooldown", want one of warmup, prefill, decode`},
		{"prefill has one stream", func(e *Events) { e.Key.Phase = PhasePrefill }, `concurrency: got 2, want 1 in phase prefill`},
		{"no streams", func(e *Events) { e.Key.Concurrency = 0 }, `concurrency: got 0, want 1 or more`},
		{"negative context", func(e *Events) { e.Key.ContextTokens = -1 }, `context_tokens: got -1, want 0 or more`},
		{"columns of different lengths", func(e *Events) { e.Status = e.Status[1:] }, `column "status": got 10 rows, want 11`},
		{"text ends go back", func(e *Events) { e.TextEnd[1] = 5 }, `row 1: text ends at byte 5, want 0 to 3`},
		{"text left over", func(e *Events) { e.Text = append(e.Text, "abc"...) }, `column "text": got 6 bytes, want 3`},
		{"stream is not planned", func(e *Events) { e.Stream[10] = 2 }, `row 10: stream: got 2, want 0 to 1`},
		{"negative request", func(e *Events) { e.Request[0] = -1 }, `row 0: request: got -1, want 0 or more`},
		{"unknown kind", func(e *Events) { e.Kind[3] = 9 }, `row 3: kind: got Kind(9), want one of sent, headers, chunk, usage, done, error, cancelled`},
		{"no kind", func(e *Events) { e.Kind[3] = 0 }, `row 3: kind: got Kind(0), want one of sent, headers, chunk, usage, done, error, cancelled`},
		{"time before the run", func(e *Events) { e.TUs[0] = -1 }, `row 0: t_us: got -1, want 0 to 1125899906842624`},
		{"time after all runs", func(e *Events) { e.TUs[10] = math.MaxInt64 }, `row 10: t_us: got 9223372036854775807, want 0 to 1125899906842624`},
		{"streams out of order", func(e *Events) { e.Stream[8], e.Stream[9] = 0, 0 }, `row 8: stream 0, request 0 comes after stream 0, request 2`},
		{"requests out of order", func(e *Events) { e.Request[6], e.Request[7], e.Request[0] = 0, 0, 1 }, `row 1: stream 0, request 0 comes after stream 0, request 1`},
		{"seq does not begin at 0", func(e *Events) { e.Seq[8] = 1 }, `row 8: seq: got 1, want 0 in the first row of a request`},
		{"gap in seq", func(e *Events) { e.Seq[3] = 4 }, `row 3: seq: got 4 after 2, want 3`},
		{"row twice", func(e *Events) { e.Seq[3] = 2 }, `row 3: seq: got 2 after 2, want 3`},
		{"request without sent", func(e *Events) { e.Kind[8] = KindHeaders }, `row 8: kind: got headers, want sent in the first row of a request`},
		{"sent twice", func(e *Events) { e.Kind[1] = KindSent; e.Status[1] = Unknown }, `row 1: kind: got a second sent in one request`},
		{"headers twice", func(e *Events) { e.Kind[3] = KindHeaders }, `row 3: kind: got headers after chunk, want it right after sent`},
		{"rows after the end", func(e *Events) { e.Kind[4] = KindDone; e.PromptTokens[4], e.CompletionTokens[4] = Unknown, Unknown }, `row 5: kind: got done after done, want no more rows of the request`},
		{"time goes back in a request", func(e *Events) { e.TUs[2] = 150 }, `row 2: t_us went back from 200 to 150`},
		{"before sent in time", func(e *Events) { e.TUs[1] = 99 }, `row 1: t_us went back from 100 to 99`},
		{"shared read at the beginning", func(e *Events) { e.SameRead[0] = true }, `row 0: same_read: got true, want false in the first row of a request`},
		{"shared read with sending", func(e *Events) { e.SameRead[1] = true }, `row 1: same_read: got true after sent, want false: nothing was read before`},
		{"shared read at another time", func(e *Events) { e.TUs[3] = 301 }, `row 3: t_us: got 301, want 300 as in the row that same_read refers to`},
		{"negative tokens", func(e *Events) { e.Tokens[2] = -2 }, `row 2: tokens: got -2, want 0 or more, or null`},
		{"tokens in sent", func(e *Events) { e.Tokens[0] = 0 }, `row 0: tokens: got 0, want null in a row of kind sent`},
		{"usage in done", func(e *Events) { e.CachedTokens[5] = 7 }, `row 5: cached_tokens: got 7, want null in a row of kind done`},
		{"status in a chunk", func(e *Events) { e.Status[2] = 200 }, `row 2: status: got 200, want null in a row of kind chunk`},
		{"status that is none", func(e *Events) { e.Status[1] = 0 }, `row 1: status: got 0, want 100 to 999, or null`},
		{"unknown channel", func(e *Events) { e.Channel[2] = 9 }, `row 2: channel: got Channel(9), want one of reasoning, content, tool, mixed, or null`},
		{"channel outside a chunk", func(e *Events) { e.Channel[4] = ChannelContent }, `row 4: channel: got content, want null in a row of kind usage`},
		{"text outside a chunk", func(e *Events) { e.HasText[4] = true }, `row 4: text: got "", want null in a row of kind usage`},
		{"text that is null and not empty", func(e *Events) { e.HasText[2] = false }, `row 2: text: got 3 bytes in a row that has no text`},
		{"text cut in a character", func(e *Events) { e.Text[2] = 'x' }, `row 2: text: got "h\xc3x", want valid UTF-8`},
		{"finish reason outside a chunk", func(e *Events) { e.FinishReason[5] = "stop" }, `row 5: finish_reason: got "stop", want null in a row of kind done`},
		{"finish reason not UTF-8", func(e *Events) { e.FinishReason[2] = "\xff" }, `row 2: finish_reason: got "\xff", want valid UTF-8`},
		{"error in a chunk", func(e *Events) { e.Error[2] = "oh" }, `row 2: error: got "oh", want null in a row of kind chunk`},
		{"error of 500 characters", func(e *Events) { e.Error[7] = strings.Repeat("語", 500) }, ""},
		{"error of 501 characters", func(e *Events) { e.Error[7] = strings.Repeat("語", 501) }, `row 7: error: got 501 characters, want 500 at most`},
		{"error of a cancelled request", func(e *Events) { e.Error[9] = "resent" }, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ev := good()
			tt.change(ev)
			want := tt.want
			if want != "" {
				want = ev.Key.File() + ": " + want
			}
			got := ""
			if err := ev.Check(); err != nil {
				got = err.Error()
			}
			if got != want {
				t.Errorf("Check() = %q, want %q", got, want)
			}
			if _, err := WriteEvents(newRun(t), ev); (err != nil) != (tt.want != "") {
				t.Errorf("WriteEvents: got %v, want an error only where Check has one", err)
			}
		})
	}
}

func TestSampleRules(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(s []Sample)
		want   string
	}{
		{"all rules kept", func(s []Sample) {}, ""},
		{"time before the run", func(s []Sample) { s[0].TUs = -1 }, `row 0: t_us: got -1, want 0 to 1125899906842624`},
		{"unknown source", func(s []Sample) { s[1].Source = "moon" }, `row 1: source: got "moon", want one of server, gpu, host, client`},
		{"no name", func(s []Sample) { s[1].Name = "" }, `row 1: name: got "", want 1 to 100 of a-z, 0-9 and _`},
		{"name with a label", func(s []Sample) { s[1].Name = `a{b="c"}` }, `row 1: name: got "a{b=\"c\"}", want 1 to 100 of a-z, 0-9 and _`},
		{"negative index", func(s []Sample) { s[1].Index = -1 }, `row 1: index: got -1, want 0 or more`},
		{"not a number", func(s []Sample) { s[2].Value = math.NaN() }, `row 2: value: got NaN, want a finite number`},
		{"infinite", func(s []Sample) { s[2].Value = math.Inf(1) }, `row 2: value: got +Inf, want a finite number`},
		{"not sorted", func(s []Sample) { s[2].TUs = 5 }, `row 2: got client cpu_ratio 0 at 5 after client cpu_ratio 0 at 1000003, want rows sorted by source, name, index, t_us`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			samples := someSamples()
			tt.change(samples)
			got := ""
			if d := checkSamples(samples); d != nil {
				got = strings.TrimPrefix(d.in("f").Error(), "f: ")
			}
			if got != tt.want {
				t.Errorf("checkSamples() = %q, want %q", got, tt.want)
			}
		})
	}
}

// The short way through Check must not let anything through that the long
// one does not.
func TestOrdinaryRowsKeepEveryRule(t *testing.T) {
	ev := cellEvents(1, 4000, 3)
	ordinary := 0
	for i := 1; i < ev.Len(); i++ {
		if ev.isOrdinary(i) {
			ordinary++
		}
	}
	if ordinary < ev.Len()*9/10 {
		t.Errorf("%d of %d rows are ordinary, want nearly all: else Check is slow", ordinary, ev.Len())
	}
	at := 1000
	for !ev.isOrdinary(at) {
		at++
	}
	for name, breakIt := range map[string]func(*Events){
		"another kind":          func(e *Events) { e.Kind[at] = KindSent },
		"no kind":               func(e *Events) { e.Kind[at] = 99 },
		"after the end":         func(e *Events) { e.Kind[at-1] = KindDone },
		"stream too high":       func(e *Events) { e.Stream[at] = 99 },
		"request before":        func(e *Events) { e.Request[at] = -1 },
		"a gap in seq":          func(e *Events) { e.Seq[at]++ },
		"back in time":          func(e *Events) { e.TUs[at] = e.TUs[at-1] - 1 },
		"too late":              func(e *Events) { e.TUs[at] = MaxTimeUs + 1 },
		"same read, other time": func(e *Events) { e.SameRead[at], e.TUs[at] = true, e.TUs[at-1]+1 },
		"tokens":                func(e *Events) { e.Tokens[at] = -2 },
		"prompt tokens":         func(e *Events) { e.PromptTokens[at] = -2 },
		"cached tokens":         func(e *Events) { e.CachedTokens[at] = -2 },
		"completion tokens":     func(e *Events) { e.CompletionTokens[at] = -2 },
		"a status":              func(e *Events) { e.Status[at] = 200 },
		"no channel":            func(e *Events) { e.Channel[at] = 99 },
		"text where none is":    func(e *Events) { e.HasText[at] = false },
		"an error":              func(e *Events) { e.Error[at] = "x" },
		"a bad finish reason":   func(e *Events) { e.FinishReason[at] = "\xff" },
		"bad text":              func(e *Events) { e.Text[e.TextEnd[at]-1] = 0xff },
		"half a character":      func(e *Events) { e.Text[e.TextEnd[at]-1], e.Text[e.TextEnd[at]] = 0xc3, 0xa9 },
	} {
		bad := cellEvents(1, 4000, 3)
		breakIt(bad)
		if err := bad.Check(); err == nil {
			t.Errorf("%s: got no error, want one", name)
		}
	}
}
