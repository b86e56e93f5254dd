package collect

import (
	"encoding/json"
	"strconv"

	"speedmatrix/ingest/runlog"
)

// How the tokens of an event are counted, from best to
// worst. It is runlog.Plan.TokenCounting.
const (
	countContinuous = "continuous usage" // usage.completion_tokens on every chunk
	countTokenIDs   = "token ids"        // token_ids on every chunk
	countFinal      = "final usage"      // usage at the end only: totals, but no counts per event
	countChunks     = "chunks"           // none: chunks are counted, and such a run is never compared
)

// A chatRequest is the body of a chat completion, but for its end.
type chatRequest struct {
	model     string
	content   string
	maxTokens int32
	sampling  runlog.Sampling
	counting  string
}

// bytes returns the body without its end, which bodyEnd gives, so that the
// streams of a cell share the long part. Both usage options are sent
// explicitly because the default of one depends on the server's version.
func (r chatRequest) bytes() []byte {
	var b []byte
	str := func(key, value string) {
		b = append(b, key...)
		s, err := json.Marshal(value)
		if err != nil {
			panic("internal error: marshal string: " + err.Error())
		}
		b = append(b, s...)
	}
	str(`{"model":`, r.model)
	str(`,"messages":[{"role":"user","content":`, r.content)
	b = append(b, `}],"stream":true`...)
	if r.counting != countChunks {
		b = append(b, `,"stream_options":{"include_usage":true`...)
		if r.counting == countContinuous {
			b = append(b, `,"continuous_usage_stats":true`...)
		}
		b = append(b, '}')
	}
	if r.counting == countTokenIDs {
		b = append(b, `,"return_token_ids":true`...)
	}
	b = append(b, `,"max_tokens":`...)
	b = strconv.AppendInt(b, int64(r.maxTokens), 10)
	b = append(b, `,"temperature":`...)
	b = strconv.AppendFloat(b, r.sampling.Temperature, 'g', -1, 64)
	b = append(b, `,"top_p":`...)
	b = strconv.AppendFloat(b, r.sampling.TopP, 'g', -1, 64)
	if r.sampling.IgnoreEOS {
		b = append(b, `,"ignore_eos":true`...)
	}
	return b
}

// bodyEnd returns the end of a body that bytes began.
//
// A seed is sent only when the plan asks for it. It makes outputs repeatable
// where the engine is, but it also takes the engine off its usual path: vLLM
// samples seeded requests one by one and not with its fused kernels, which
// is slower the more of them run at once.
func (r *run) bodyEnd(k runlog.Key, stream, request int32) []byte {
	if !r.m.Plan.Sampling.Seeded {
		return []byte("}")
	}
	b := strconv.AppendInt([]byte(`,"seed":`), requestSeed(r.m.Plan.Seed, k, stream, request), 10)
	return append(b, '}')
}

// requestSeed gives every request of a run a sampling seed of its own that
// can be told again: the same for the same place in the plan.
func requestSeed(seed int64, k runlog.Key, stream, request int32) int64 {
	h := uint64(seed)*0x9E3779B97F4A7C15 + uint64(k.ContextTokens)<<40 + uint64(k.Concurrency)<<28 + uint64(stream)<<14 + uint64(request)
	h ^= h >> 31
	h *= 0xBF58476D1CE4E5B9
	h ^= h >> 29
	return int64(h & 0x7fffffff) // every server takes 31 bits
}
