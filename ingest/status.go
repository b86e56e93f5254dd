package ingest

// A Status says whether a measurement counts, and if not, why.
type Status uint8

// The statuses in their order of precedence, which is also the order of the
// legend. docs/method.md gives the rules.
const (
	Valid Status = iota
	OverCapacity
	NotRun
	Failed
	Looped
	ClientLimited
	UnderFilled
	Cached
)

// Statuses lists every status but Valid in order of precedence.
func Statuses() []Status {
	return []Status{OverCapacity, NotRun, Failed, Looped, ClientLimited, UnderFilled, Cached}
}

// statusTable is the one table of statuses.
var statusTable = [...]struct{ word, slug, sentence string }{
	Valid:         {"Valid", "valid", ""},
	OverCapacity:  {"Over capacity", "over-capacity", "not run because this many requests at this context would exceed the server's KV cache."},
	NotRun:        {"Not run", "not-run", "the benchmark was stopped before it reached this measurement."},
	Failed:        {"Failed", "failed", "the server did not answer every request of this measurement."},
	Looped:        {"Looped", "looped", "the model kept repeating the same text, so the benchmark discarded this measurement."},
	ClientLimited: {"Client limited", "client-limited", "the benchmark itself could not keep up, so this says nothing about the server."},
	UnderFilled:   {"Under-filled", "under-filled", "the server did not run this many requests at once, so fewer were measured."},
	Cached:        {"Cached", "cached", "part of the prompt was already in the server's cache, so this is not a prefill speed."},
}

// String returns the word on the page, such as "Over capacity".
func (s Status) String() string { return statusTable[s].word }

// Slug returns the status as a file- and CSS-safe name, such as "over-capacity".
func (s Status) Slug() string { return statusTable[s].slug }

// Sentence returns the legend's sentence, such as "Looped: the model kept …".
// It is empty for Valid.
func (s Status) Sentence() string {
	if s == Valid {
		return ""
	}
	return s.String() + ": " + statusTable[s].sentence
}
