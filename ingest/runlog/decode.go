package runlog

import "slices"

// A Reader reads event files one after the other into the same memory, of
// which each needs about 90 bytes a row. The zero value is ready. One reader
// reads one file at a time.
type Reader struct {
	columns []column
	at      map[string]int // their places
	scratch scratch
	data    []byte // the file
	events  Events
}

// decodeEvents decodes and checks an event file of the given key.
func decodeEvents(data []byte, key Key) (*Events, *damage) { return new(Reader).decode(data, key) }

// decode is decodeEvents into the reader's memory.
func (r *Reader) decode(data []byte, key Key) (ev *Events, err *damage) {
	defer func() { // the last line of defence: the walks should have found it
		if r := recover(); r != nil {
			ev, err = nil, damagef("unreadable: %v", r)
		}
	}()
	if err := key.check(); err != nil {
		return nil, err
	}
	if r.columns == nil {
		r.columns, r.at = columnsOf[eventRow](), make(map[string]int)
		for i, c := range r.columns {
			r.at[c.name] = i
		}
	}
	at := r.at
	f, err := openParquet(data, r.columns, key.metadata(), &r.scratch)
	if err != nil {
		return nil, err
	}
	ev = &r.events
	ev.Key = key
	if ev.TUs, err = f.readInt64s(at["t_us"], ev.TUs); err != nil { // first: it confirms the number of rows
		return nil, err
	}
	if err = f.readConstantWord(at["phase"], string(key.Phase)); err != nil {
		return nil, err
	}
	if err = f.readConstantNumber(at["context_tokens"], key.ContextTokens); err != nil {
		return nil, err
	}
	if err = f.readConstantNumber(at["concurrency"], key.Concurrency); err != nil {
		return nil, err
	}
	for _, c := range []struct {
		name string
		into *[]int32
	}{
		{"stream", &ev.Stream}, {"request", &ev.Request}, {"seq", &ev.Seq}, {"tokens", &ev.Tokens},
		{"prompt_tokens", &ev.PromptTokens}, {"cached_tokens", &ev.CachedTokens},
		{"completion_tokens", &ev.CompletionTokens}, {"status", &ev.Status},
	} {
		if *c.into, err = f.readInt32s(at[c.name], *c.into); err != nil {
			return nil, err
		}
	}
	if ev.Kind, err = readEnum(f, at["kind"], kindNames[:], ev.Kind); err != nil {
		return nil, err
	}
	if ev.Channel, err = readEnum(f, at["channel"], channelNames[:], ev.Channel); err != nil {
		return nil, err
	}
	if ev.SameRead, err = f.readBools(at["same_read"], ev.SameRead); err != nil {
		return nil, err
	}
	if ev.FinishReason, err = f.readWords(at["finish_reason"], ev.FinishReason); err != nil {
		return nil, err
	}
	if ev.Error, err = f.readWords(at["error"], ev.Error); err != nil {
		return nil, err
	}
	if err = f.readText(at["text"], ev); err != nil {
		return nil, err
	}
	return ev, ev.check()
}

// decodeSamples decodes and checks a telemetry file.
func decodeSamples(data []byte) (samples []Sample, err *damage) {
	defer func() {
		if r := recover(); r != nil {
			samples, err = nil, damagef("unreadable: %v", r)
		}
	}()
	f, err := openParquet(data, columnsOf[sampleRow](), telemetryMetadata(), new(scratch))
	if err != nil {
		return nil, err
	}
	times, err := f.readInt64s(0, nil)
	if err != nil {
		return nil, err
	}
	sources, err := f.readWords(1, nil)
	if err != nil {
		return nil, err
	}
	names, err := f.readWords(2, nil)
	if err != nil {
		return nil, err
	}
	indexes, err := f.readInt32s(3, nil)
	if err != nil {
		return nil, err
	}
	values, err := f.readFloats(4)
	if err != nil {
		return nil, err
	}
	samples = make([]Sample, len(times))
	for i := range samples {
		samples[i] = Sample{TUs: times[i], Source: Source(sources[i]), Name: names[i], Index: indexes[i], Value: values[i]}
	}
	return samples, checkSamples(samples)
}

// readConstantNumber holds a column against the one value that all its rows
// must have: what the file's name and metadata say.
func (f *parquetFile) readConstantNumber(index int, want int32) *damage {
	return f.readNumbers(index, func(p page, numbers, indexes []int32) *damage {
		return constant(p, numbers, indexes, want, func(row int, got int32) *damage {
			return rowf(row, "%s: got %d, want %d", f.columns[index].name, got, want)
		})
	})
}

// readConstantWord is readConstantNumber for a string column.
func (f *parquetFile) readConstantWord(index int, want string) *damage {
	return f.readIndexed(index, func(p page, words []string, indexes []int32) *damage {
		return constant(p, words, indexes, want, func(row int, got string) *damage {
			return rowf(row, "%s: got %q, want %q", f.columns[index].name, clip(got), want)
		})
	})
}

// constant calls bad for the first row of a page whose entry of the
// dictionary is not the one wanted. Where no other entry is there, no row
// need be looked at.
func constant[T comparable](p page, entries []T, indexes []int32, want T, bad func(row int, got T) *damage) *damage {
	if !slices.ContainsFunc(entries, func(entry T) bool { return entry != want }) {
		return nil
	}
	for i, index := range indexes {
		if entries[index] != want {
			return bad(p.firstRow+i, entries[index])
		}
	}
	return nil
}

// readEnum returns a column of words as the numbers that stand for them, in
// the memory of into where that is enough; names[i] is the word of the value
// i, and null is 0.
func readEnum[E ~uint8](f *parquetFile, index int, names []string, into []E) ([]E, *damage) {
	out := sized(into, f.rows)
	clear(out)
	const unknown = 255
	var values []E // that the words of the dictionary stand for
	d := f.readIndexed(index, func(p page, words []string, indexes []int32) *damage {
		if values == nil {
			values = make([]E, len(words))
			for i, word := range words {
				values[i] = unknown
				for value := 1; value < len(names); value++ {
					if names[value] == word {
						values[i] = E(value)
					}
				}
			}
		}
		bad, badWord := -1, ""
		rows := out[p.firstRow : p.firstRow+p.rows]
		p.runs(func(from, to int, has bool) {
			if !has {
				return
			}
			for i, word := range indexes[:to-from] {
				if rows[from+i] = values[word]; values[word] == unknown && bad < 0 {
					bad, badWord = from+i, words[word]
				}
			}
			indexes = indexes[to-from:]
		})
		if bad >= 0 {
			return rowf(p.firstRow+bad, "%s: got %q, want %s", f.columns[index].name, clip(badWord), oneOf(names[1:]...))
		}
		return nil
	})
	return out, d
}

// readText reads the column of texts into ev.
func (f *parquetFile) readText(index int, ev *Events) *damage {
	ev.HasText, ev.TextEnd, ev.Text = sized(ev.HasText, f.rows), sized(ev.TextEnd, f.rows), ev.Text[:0]
	return f.pages(index, nil, func(p page) *damage {
		lengths, texts, d := f.deltas(p.data, p.values)
		if d != nil {
			return d
		}
		total := int64(0)
		for _, length := range lengths {
			if length < 0 {
				return damagef("got a text of %d bytes", length)
			}
			total += int64(length)
		}
		if total != int64(len(texts)) {
			return damagef("got texts of %d bytes together, want %d", total, len(texts))
		}
		end := len(ev.Text)
		hasText, textEnd := ev.HasText[p.firstRow:p.firstRow+p.rows], ev.TextEnd[p.firstRow:p.firstRow+p.rows]
		p.runs(func(from, to int, has bool) {
			for i := from; i < to; i++ {
				if has {
					end += int(lengths[i-from])
				}
				hasText[i], textEnd[i] = has, end
			}
			if has {
				lengths = lengths[to-from:]
			}
		})
		ev.Text = append(ev.Text, texts...)
		return nil
	})
}
