package main

import (
	"os"
	"strconv"

	"github.com/klauspost/compress/zstd"

	"speedmatrix/ingest/runlog"
)

// appendJSONL appends the events as JSON, a line each, without the fields
// that are unknown: the form in which most collectors would keep them.
func appendJSONL(b []byte, ev *runlog.Events) []byte {
	for i := range ev.Len() {
		b = appendLine(b, ev, i)
	}
	return b
}

func appendLine(b []byte, ev *runlog.Events, i int) []byte {
	number := func(key string, v int64) {
		if v >= 0 {
			b = append(append(append(b, ",\""...), key...), "\":"...)
			b = strconv.AppendInt(b, v, 10)
		}
	}
	text := func(key, v string) {
		if v != "" {
			b = append(append(append(b, ",\""...), key...), "\":"...)
			b = appendString(b, v)
		}
	}
	b = append(b, `{"phase":"`...)
	b = append(b, ev.Key.Phase...)
	b = append(b, '"')
	number("context_tokens", int64(ev.Key.ContextTokens))
	number("concurrency", int64(ev.Key.Concurrency))
	number("stream", int64(ev.Stream[i]))
	number("request", int64(ev.Request[i]))
	number("seq", int64(ev.Seq[i]))
	text("kind", ev.Kind[i].String())
	number("t_us", ev.TUs[i])
	if ev.SameRead[i] {
		b = append(b, `,"same_read":true`...)
	}
	number("tokens", int64(ev.Tokens[i]))
	text("channel", ev.Channel[i].String())
	if ev.HasText[i] {
		b = append(b, `,"text":`...)
		b = appendString(b, ev.TextAt(i))
	}
	text("finish_reason", ev.FinishReason[i])
	number("prompt_tokens", int64(ev.PromptTokens[i]))
	number("cached_tokens", int64(ev.CachedTokens[i]))
	number("completion_tokens", int64(ev.CompletionTokens[i]))
	number("status", int64(ev.Status[i]))
	text("error", ev.Error[i])
	return append(b, "}\n"...)
}

func appendString[T string | []byte](b []byte, s T) []byte {
	const hex = "0123456789abcdef"
	b = append(b, '"')
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c == '\n':
			b = append(b, '\\', 'n')
		case c < ' ':
			b = append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		default: // UTF-8 as it is
			b = append(b, c)
		}
	}
	return append(b, '"')
}

// writeJSONL writes the events as compressed JSONL, at the library's level
// that answers to zstd -3, a buffer at a time.
func writeJSONL(path string, ev *runlog.Events) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	z, err := zstd.NewWriter(f, zstd.WithEncoderLevel(zstd.SpeedDefault), zstd.WithEncoderConcurrency(1))
	if err != nil {
		return err
	}
	buffer := make([]byte, 0, 64<<10)
	for i := range ev.Len() {
		if buffer = appendLine(buffer, ev, i); len(buffer) > 60<<10 {
			if _, err := z.Write(buffer); err != nil {
				return err
			}
			buffer = buffer[:0]
		}
	}
	if _, err := z.Write(buffer); err != nil {
		return err
	}
	return z.Close()
}
