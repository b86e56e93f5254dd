package server

// The sizes that default plans are made of, in tokens.
const (
	defaultOutput = 4096
	firstContext  = 8192
	prefillExtra  = 131072
	margin        = 1024 // left free beside context and output
)

// DefaultMaxOutput returns the output limit of a default plan: 4,096 tokens,
// or a quarter of maxModelLen on servers shorter than 8,192.
func DefaultMaxOutput(maxModelLen int32) int32 {
	if maxModelLen > 0 && maxModelLen < 2*defaultOutput {
		return max(1, maxModelLen/4)
	}
	return defaultOutput
}

// DefaultPlan returns the contexts to measure on a server of the given
// max_model_len M with outputs of up to O tokens, both ascending, in tokens.
//
// Decode contexts are 8K, 16K, 32K, … as long as context + O + 1,024 ≤ M,
// then the largest that fits, M − O − 1,024. Where not even 8K fits they
// begin at 1K instead; where not even 1K fits there is only the largest; and
// below M = 8,192 the margin of 1,024 is M/8. They are nil when M is unknown
// (0) or leaves no room beside the output.
//
// Prefill contexts are the same plus 128K where M allows it and M itself. A
// prompt as long as M has no room for output: see PromptTokens.
func DefaultPlan(maxModelLen, maxOutput int32) (contexts, prefill []int32) {
	m, free := int64(maxModelLen), min(int64(margin), int64(maxModelLen)/8)
	largest := m - int64(maxOutput) - free
	if m <= 0 || largest < 1 {
		return nil, nil
	}
	first := int64(firstContext)
	if largest < first {
		first = 1024
	}
	for c := first; c <= largest; c *= 2 {
		contexts = append(contexts, int32(c))
	}
	// On small servers a largest context with the same label in K as the
	// one before it would only be measured twice.
	n := len(contexts)
	if n == 0 || int64(contexts[n-1]) < largest && (first == firstContext || largest/1024 > int64(contexts[n-1])/1024) {
		contexts = append(contexts, int32(largest))
	}
	prefill = append(prefill, contexts...)
	for _, extra := range []int32{prefillExtra, maxModelLen} {
		if extra <= maxModelLen && prefill[len(prefill)-1] < extra {
			prefill = append(prefill, extra)
		}
	}
	return contexts, prefill
}

// PromptTokens returns how long the prompt of a planned context is: the
// context, or what the output leaves of maxModelLen where that is less. It
// is below 1 when nothing is left.
func PromptTokens(context, maxModelLen, maxOutput int32) int32 {
	if maxModelLen <= 0 {
		return context
	}
	return int32(min(int64(context), int64(maxModelLen)-int64(maxOutput)))
}
