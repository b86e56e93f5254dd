package server

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"speedmatrix/ingest/runlog"
)

// Capacity returns what is known about the server's KV cache, in the order
// of preference of the method:
//
//  1. the label kv_cache_size_tokens, per engine, times the engines; or
//     kv_cache_max_concurrency × maxModelLen where that is more, because
//     some releases got the first wrong for hybrid models and none the second;
//  2. (num_gpu_blocks − one reserved block per engine) × block_size, where
//     num_gpu_blocks is already the sum over the engines;
//  3. kvTokens, the person's own figure; 0 when there is none;
//  4. nothing: KVCacheTokens is 0, which is unknown, and no cell is left out.
//
// m may be nil, and maxModelLen 0 when not known. maxNumSeqs is the server's
// --max-num-seqs, which holds per engine, 0 when not known. Source says in
// words where KVCacheTokens came from.
func Capacity(m *Metrics, maxModelLen int32, kvTokens int64, maxNumSeqs int32) runlog.Capacity {
	var c runlog.Capacity
	if m != nil {
		c.Engines = m.Engines()
		c.Raw = m.rawCache()
		c.KVCacheTokens, c.Source = labelledTokens(m.cache, maxModelLen)
		if c.KVCacheTokens == 0 {
			c.KVCacheTokens, c.Source = blockTokens(m.cache, c.Engines)
		}
	}
	switch {
	case kvTokens > 0 && c.KVCacheTokens == 0:
		c.KVCacheTokens, c.Source = kvTokens, "given: --kv-cache-tokens"
	case kvTokens > 0 && c.KVCacheTokens != kvTokens:
		c.Source += fmt.Sprintf("; the given %s tokens are not used", commas(kvTokens))
	}
	if n := int64(maxNumSeqs) * int64(max(1, c.Engines)); n > 0 && n <= math.MaxInt32 {
		c.MaxNumSeqs = int32(n)
	}
	return c
}

// labelledTokens returns the group-aware size over all engines; 0 unless
// every engine tells it.
func labelledTokens(cache []engineLabels, maxModelLen int32) (int64, string) {
	var total int64
	byConcurrency := false
	for _, e := range cache {
		size := positive(e.labels["kv_cache_size_tokens"])
		fromConcurrency := positive(e.labels["kv_cache_max_concurrency"]) * float64(maxModelLen)
		// The label is the product cut to a whole number; a product that is
		// more than that only by rounding is no disagreement.
		if fromConcurrency > size*1.01 {
			size, byConcurrency = fromConcurrency, true
		}
		if size < 1 || size > 1<<50 {
			return 0, ""
		}
		total += int64(size)
	}
	source := "kv_cache_size_tokens"
	if byConcurrency {
		source = "kv_cache_max_concurrency × max_model_len"
	}
	if len(cache) > 1 {
		source = fmt.Sprintf("%s, sum of %d engines", source, len(cache))
	}
	return total, source
}

// blockTokens returns the size from the block pool. Every engine's series
// repeats the sum over engines; where they differ they are something else.
func blockTokens(cache []engineLabels, engines int) (int64, string) {
	var blocks, size float64
	for i, e := range cache {
		b, s := positive(e.labels["num_gpu_blocks"]), positive(e.labels["block_size"])
		if i > 0 && (b != blocks || s != size) {
			return 0, ""
		}
		blocks, size = b, s
	}
	usable := blocks - float64(engines)
	if usable < 1 || size < 1 || usable*size > 1<<50 {
		return 0, ""
	}
	return int64(usable) * int64(size), "(num_gpu_blocks − reserved) × block_size"
}

// positive parses a label that should be a number; 0 for "None", text,
// infinities and everything else that isn't more than 0.
func positive(s string) float64 {
	v, err := strconv.ParseFloat(s, 64)
	if err != nil || math.IsNaN(v) || math.IsInf(v, 0) || v <= 0 {
		return 0
	}
	return v
}

// OverCapacity reports whether concurrency requests of contextTokens prompt
// tokens and maxOutput output tokens are more than the server can hold at
// once, and says why with the numbers. A request lives in one engine, so
// with several engines the fullest one decides. What is not known rules
// nothing out.
func OverCapacity(c runlog.Capacity, concurrency, contextTokens, maxOutput int32) (over bool, reason string) {
	if c.MaxNumSeqs > 0 && concurrency > c.MaxNumSeqs {
		return true, fmt.Sprintf("%s requests at once, but the server runs at most %s (max_num_seqs)",
			commas(int64(concurrency)), commas(int64(c.MaxNumSeqs)))
	}
	if c.KVCacheTokens <= 0 {
		return false, ""
	}
	engines := int64(max(1, c.Engines))
	perEngine := c.KVCacheTokens / engines
	requests := (int64(concurrency) + engines - 1) / engines
	each := int64(contextTokens) + int64(maxOutput)
	if requests*each <= perEngine {
		return false, ""
	}
	where, cache := "", "KV cache"
	if engines > 1 {
		where = fmt.Sprintf(" in the fullest of %d engines", engines)
		cache = "engine's KV cache"
	}
	plural := "s"
	if requests == 1 {
		plural = ""
	}
	return true, fmt.Sprintf("%s request%s%s × (%s context + %s output) tokens = %s, but the %s holds %s (%s)",
		commas(requests), plural, where, commas(int64(contextTokens)), commas(int64(maxOutput)), commas(requests*each),
		cache, commas(perEngine), c.Source)
}

// commas formats a count of 0 or more with a comma between thousands.
func commas(n int64) string {
	s := strconv.FormatInt(n, 10)
	var b strings.Builder
	for i, d := range s {
		if i > 0 && (len(s)-i)%3 == 0 {
			b.WriteByte(',')
		}
		b.WriteRune(d)
	}
	return b.String()
}
