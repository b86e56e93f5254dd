package runlog

// decodeEvents decodes and checks an event file of the given key.
func decodeEvents(data []byte, key Key) (ev *Events, err *damage) {
	defer func() { // the last line of defence: the walks should have found it
		if r := recover(); r != nil {
			ev, err = nil, damagef("unreadable: %v", r)
		}
	}()
	if err := key.check(); err != nil {
		return nil, err
	}
	f, err := openParquet(data, columnsOf[eventRow](), key.metadata())
	if err != nil {
		return nil, err
	}
	at := make(map[string]int, len(f.columns))
	for i, c := range f.columns {
		at[c.name] = i
	}
	ev = &Events{Key: key}
	if ev.TUs, err = f.readInt64s(at["t_us"]); err != nil { // first: it confirms the number of rows
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
		if *c.into, err = f.readInt32s(at[c.name]); err != nil {
			return nil, err
		}
	}
	if ev.Kind, err = readEnum[Kind](f, at["kind"], kindNames[:]); err != nil {
		return nil, err
	}
	if ev.Channel, err = readEnum[Channel](f, at["channel"], channelNames[:]); err != nil {
		return nil, err
	}
	if ev.SameRead, err = f.readBools(at["same_read"]); err != nil {
		return nil, err
	}
	if ev.FinishReason, err = f.readWords(at["finish_reason"]); err != nil {
		return nil, err
	}
	if ev.Error, err = f.readWords(at["error"]); err != nil {
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
	f, err := openParquet(data, columnsOf[sampleRow](), telemetryMetadata())
	if err != nil {
		return nil, err
	}
	times, err := f.readInt64s(0)
	if err != nil {
		return nil, err
	}
	sources, err := f.readWords(1)
	if err != nil {
		return nil, err
	}
	names, err := f.readWords(2)
	if err != nil {
		return nil, err
	}
	indexes, err := f.readInt32s(3)
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
	numbers, d := f.readInt32s(index)
	if d != nil {
		return d
	}
	for i, got := range numbers {
		if got != want {
			return rowf(i, "%s: got %d, want %d", f.columns[index].name, got, want)
		}
	}
	return nil
}

// readConstantWord is readConstantNumber for a string column.
func (f *parquetFile) readConstantWord(index int, want string) *damage {
	return f.readIndexed(index, func(p page, words []string, indexes []int32) *damage {
		for i, word := range indexes {
			if words[word] != want {
				return rowf(p.firstRow+i, "%s: got %q, want %q", f.columns[index].name, clip(words[word]), want)
			}
		}
		return nil
	})
}

// readEnum returns a column of words as the numbers that stand for them;
// names[i] is the word of the value i, and null is 0.
func readEnum[E ~uint8](f *parquetFile, index int, names []string) ([]E, *damage) {
	c := f.columns[index]
	out := make([]E, 0, f.rows)
	const unknown = 255
	var values []E
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
		next := 0
		for row := range p.rows {
			value := E(0)
			if p.has(row) {
				if value = values[indexes[next]]; value == unknown {
					return rowf(p.firstRow+row, "%s: got %q, want %s", c.name, clip(words[indexes[next]]), oneOf(names[1:]...))
				}
				next++
			}
			out = append(out, value)
		}
		return nil
	})
	return out, d
}

// readText reads the column of texts into ev.
func (f *parquetFile) readText(index int, ev *Events) *damage {
	ev.HasText = make([]bool, 0, f.rows)
	ev.TextEnd = make([]int, 0, f.rows)
	return f.pages(index, nil, func(p page) *damage {
		lengths, texts, d := f.deltas(p.data, p.values)
		if d != nil {
			return d
		}
		next, end := 0, len(ev.Text)
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
		for _, level := range p.levels {
			if level == 1 {
				end += int(lengths[next])
				next++
			}
			ev.HasText = append(ev.HasText, level == 1)
			ev.TextEnd = append(ev.TextEnd, end)
		}
		ev.Text = append(ev.Text, texts...)
		return nil
	})
}
