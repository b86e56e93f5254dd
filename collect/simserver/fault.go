package simserver

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// FaultHeader is the request header that overrides Config.Fault for one
// request; its value is what ParseFault takes.
const FaultHeader = "X-Sim-Fault"

// A FaultAct ends an answer in a wrong way.
type FaultAct int

const (
	ActNone       FaultAct = iota
	ActError               // an error event, then [DONE]
	ActEmptyError          // an error event with an empty message, then [DONE]
	ActTruncate            // the body ends as if whole, without [DONE]
	ActClose               // the connection is closed inside the body
	ActReset               // the connection is reset
	ActHang                // nothing more is sent until the client gives up
	ActAbort               // a finish chunk with "abort", as when the server is stopped
	ActDie                 // the engine dies: all streams get an error event, then no connection is accepted
)

var actNames = map[string]FaultAct{
	"error": ActError, "empty-error": ActEmptyError, "truncate": ActTruncate, "close": ActClose,
	"reset": ActReset, "hang": ActHang, "abort": ActAbort, "die": ActDie,
}

// A BodyShape is one of the shapes in which errors arrive before a stream.
type BodyShape int

const (
	BodyObject BodyShape = iota // {"error":{…}}: vLLM since August 2025
	BodyFlat                    // {"object":"error",…}: before that
	BodyString                  // {"error":"…"}
	BodyHTML                    // a proxy's page
	BodyEmpty                   // nothing
)

var bodyNames = map[string]BodyShape{"object": BodyObject, "flat": BodyFlat, "string": BodyString, "html": BodyHTML, "empty": BodyEmpty}

// A UsageFault makes usage wrong.
type UsageFault int

const (
	UsageRight  UsageFault = iota
	UsageNone              // stream_options is ignored: no usage at all
	UsageFinal             // continuous_usage_stats is ignored
	UsageDeltas            // each chunk tells its own tokens, not the sum
	UsageChunks            // chunks are counted instead of tokens
	UsageWrong             // the last usage is 7 tokens too many
)

var usageNames = map[string]UsageFault{"none": UsageNone, "final": UsageFinal, "deltas": UsageDeltas, "chunks": UsageChunks, "wrong": UsageWrong}

// A Fault is what goes wrong with a request to /v1/chat/completions or
// /v1/completions. The zero value is no fault.
type Fault struct {
	// Every restricts a Config.Fault to each Every-th request, counted from
	// 1; 0 means all. It is ignored in a header.
	Every int

	Status int       // answer with this HTTP status at once; 0 means no
	Body   BodyShape // of that answer

	Act FaultAct
	// After is the number of chunks with tokens before Act; 0 means right
	// after the headers, BeforeHeaders before the first byte.
	After int

	StallAfter int           // chunks with tokens before a pause of StallFor
	StallFor   time.Duration // 0 means no pause

	Usage           UsageFault
	IgnoreMaxTokens bool // go on to the model's limit
	IgnoreIgnoreEOS bool // end at the end of the answer all the same
	RejectIgnoreEOS bool // 400 for ignore_eos as an unknown field

	KeepAlive time.Duration // a comment line whenever nothing was sent for this long; 0 means none
	CRLF      bool          // lines end with \r\n
	NoSpace   bool          // "data:" without the space
	SplitUTF8 bool          // characters are cut in two between chunks, so that JSON strings are not UTF-8
	Dribble   int           // write the body in pieces of this many bytes; 0 means no
}

// BeforeHeaders is the Fault.After of an act before the first byte.
const BeforeHeaders = -1

// FaultSyntax describes what ParseFault takes, one item a line.
const FaultSyntax = `status=N           this HTTP status; body=object|flat|string|html|empty
close-after=N      close the connection after N chunks with tokens; 0 means
                   right after the headers
reset-after=N      … reset it; truncate-after=N … end without [DONE]
hang-after=N       … fall silent; abort-after=N … finish_reason abort
error-after=N      … an error event; empty-error-after=N … without message
die-after=N        … the engine dies: errors for all, then no connections
close-before, reset-before, hang-before: before the first byte
stall=N:2s         pause for 2s after N chunks with tokens
usage=none|final|deltas|chunks|wrong
ignore-max-tokens, ignore-ignore-eos, reject-ignore-eos
keep-alive=1s      comment lines in silence
crlf, no-space, split-utf8, dribble=BYTES
every=N            only each N-th request (not in the header)
none`

// ParseFault reads a comma-separated list of FaultSyntax items.
func ParseFault(s string) (Fault, error) {
	var f Fault
	for item := range strings.SplitSeq(s, ",") {
		item = strings.TrimSpace(item)
		if item == "" || item == "none" {
			continue
		}
		if err := f.set(item); err != nil {
			return Fault{}, err
		}
	}
	return f, f.validate()
}

func (f *Fault) set(item string) error {
	name, value, hasValue := strings.Cut(item, "=")
	count := func(min int) (int, error) {
		n, err := strconv.Atoi(value)
		if err != nil || n < min || n > 1<<30 {
			return 0, fmt.Errorf("fault %q: got %q, want a number of at least %d", name, value, min)
		}
		return n, nil
	}
	duration := func(v string) (time.Duration, error) {
		d, err := time.ParseDuration(v)
		if err != nil || d <= 0 {
			return 0, fmt.Errorf("fault %q: got %q, want a duration such as 2s", name, v)
		}
		return d, nil
	}
	act := func(a FaultAct, after int) error {
		if f.Act != ActNone {
			return fmt.Errorf("fault %q: an answer can end in one way only", name)
		}
		f.Act, f.After = a, after
		return nil
	}
	var err error
	switch {
	case strings.HasSuffix(name, "-after"):
		a, ok := actNames[strings.TrimSuffix(name, "-after")]
		if !ok {
			return fmt.Errorf("fault %q is unknown", name)
		}
		n, err := count(0)
		if err != nil {
			return err
		}
		return act(a, n)
	case name == "stall":
		n, d, ok := strings.Cut(value, ":")
		if !ok {
			return fmt.Errorf("fault %q: got %q, want a count and a duration such as 5:2s", name, value)
		}
		value = n
		if f.StallAfter, err = count(0); err == nil {
			f.StallFor, err = duration(d)
		}
	case name == "status":
		if f.Status, err = count(400); err == nil && f.Status > 599 {
			err = fmt.Errorf("fault %q: got %q, want 400 to 599", name, value)
		}
	case name == "every":
		f.Every, err = count(1)
	case name == "dribble":
		f.Dribble, err = count(1)
	case name == "keep-alive":
		f.KeepAlive, err = duration(value)
	case name == "body":
		var ok bool
		if f.Body, ok = bodyNames[value]; !ok {
			err = fmt.Errorf("fault %q: got %q, want object, flat, string, html or empty", name, value)
		}
	case name == "usage":
		var ok bool
		if f.Usage, ok = usageNames[value]; !ok {
			err = fmt.Errorf("fault %q: got %q, want none, final, deltas, chunks or wrong", name, value)
		}
	case hasValue:
		return fmt.Errorf("fault %q is unknown, or takes no value", name)
	case name == "close-before":
		return act(ActClose, BeforeHeaders)
	case name == "reset-before":
		return act(ActReset, BeforeHeaders)
	case name == "hang-before":
		return act(ActHang, BeforeHeaders)
	default:
		flag, ok := map[string]*bool{
			"ignore-max-tokens": &f.IgnoreMaxTokens, "ignore-ignore-eos": &f.IgnoreIgnoreEOS, "reject-ignore-eos": &f.RejectIgnoreEOS,
			"crlf": &f.CRLF, "no-space": &f.NoSpace, "split-utf8": &f.SplitUTF8,
		}[name]
		if !ok {
			return fmt.Errorf("fault %q is unknown", name)
		}
		*flag = true
	}
	return err
}

func (f Fault) validate() error {
	switch {
	case f.Status != 0 && (f.Status < 400 || f.Status > 599):
		return fmt.Errorf("simserver: Fault.Status is %d, want 400 to 599", f.Status)
	case f.After < BeforeHeaders, f.StallAfter < 0, f.StallFor < 0, f.KeepAlive < 0, f.Dribble < 0, f.Every < 0:
		return fmt.Errorf("simserver: a number of Fault is negative")
	case f.After == BeforeHeaders && f.Act != ActClose && f.Act != ActReset && f.Act != ActHang:
		return fmt.Errorf("simserver: only close, reset and hang can come before the headers")
	}
	return nil
}
