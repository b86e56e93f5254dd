package runlog

import "time"

// Format is the version of the run log that this package writes and the
// only one that it reads. A change that an old reader would misread takes
// a new number; a number is never used twice.
const Format = "runlog/1"

// ManifestFile is the name of the manifest in a run directory. A directory
// without one is not a run.
const ManifestFile = "run.json"

// TelemetryFile is the name of the telemetry file in a run directory.
const TelemetryFile = "telemetry.parquet"

// NotesFile is the name of the optional notes, written by hand.
const NotesFile = "notes.md"

// A Manifest is run.json: what was planned, on what, and which files hold
// what was observed. Unknown facts are absent: nil, "" or 0 in Go is left
// out of the file, and no fact has one of these as a real value, unless the
// field says otherwise.
type Manifest struct {
	Format string `json:"format"` // always the constant Format
	Tool   Tool   `json:"tool"`

	// StartedAt is the wall clock at the start of the run, UTC. Every time
	// in the run is microseconds since this instant on one monotonic clock,
	// so later steps of the wall clock do not matter.
	StartedAt time.Time `json:"started_at"`

	// ArrivalClock says where arrival times come from.
	ArrivalClock ArrivalClock `json:"arrival_clock"`

	// Finished is true when the plan was worked off; false while the run is
	// going on or after an interruption.
	Finished bool `json:"finished"`

	// ResumedUs holds the instants at which an interrupted run was gone on
	// with, by another process of the collector.
	ResumedUs []int64 `json:"resumed_us,omitempty"`

	Launch   Launch   `json:"launch"`
	Engine   Engine   `json:"engine"`
	Model    Model    `json:"model"`
	Hardware Hardware `json:"hardware"`
	Server   Server   `json:"server"`
	Plan     Plan     `json:"plan"`
	Capacity Capacity `json:"capacity"`
	Warmup   *Warmup  `json:"warmup,omitempty"` // the hidden warm-up's file; nil when there was none
	Cells    []Cell   `json:"cells"`            // one per planned cell, in plan order: prefill, then decode, ascending

	// Telemetry is nil while the run goes on and when it was killed: the
	// manifest and the telemetry file can't be replaced at one instant. The
	// file itself is then there all the same, whole, with all samples up to
	// the cell that ended last, or a moment more.
	Telemetry *Telemetry `json:"telemetry,omitempty"`
}

// An ArrivalClock says whose clock stamped what came from the server.
type ArrivalClock string

const (
	ArrivalKernel ArrivalClock = "kernel" // the kernel's receive time of the last segment that the read returned
	ArrivalUser   ArrivalClock = "user"   // the time right after the read returned
)

// A Tool names the program that made a run.
type Tool struct {
	Name    string `json:"name"`
	Version string `json:"version,omitempty"`
	Commit  string `json:"commit,omitempty"`
}

// A Launch places a run among others of one session. One launch of the
// server is one run.
type Launch struct {
	Group     string `json:"group,omitempty"`     // the session
	Index     int    `json:"index,omitempty"`     // 1, 2, … among the launches of one commit
	Order     int    `json:"order,omitempty"`     // 1, 2, … in an interleaved session
	Restarted *bool  `json:"restarted,omitempty"` // the server was started anew before this run; nil when not known
}

// A FactSource says where a fact about the engine came from.
type FactSource string

const (
	FromServer  FactSource = "server"  // an endpoint of the server
	FromProcess FactSource = "process" // the process that listens on the port
	FromFlag    FactSource = "flag"    // the person who ran the collector
)

// A Fact is a string with its source.
type Fact struct {
	Value  string     `json:"value"`
	Source FactSource `json:"source"`
}

// An Engine describes the inference engine that was measured.
type Engine struct {
	Name          *Fact        `json:"name,omitempty"`         // "vllm"
	Version       *Fact        `json:"version,omitempty"`      // as the server says it
	Commit        *Fact        `json:"commit,omitempty"`       // hexadecimal
	Build         *Fact        `json:"build,omitempty"`        // "cuda-13.2"
	Backend       *Fact        `json:"backend,omitempty"`      // "cuda", "rocm", "cpu"
	Repository    *Fact        `json:"repository,omitempty"`   // "github.com/vllm-project/vllm"
	Quantization  *Fact        `json:"quantization,omitempty"` // "BF16", "INT4+INT8"
	LaunchCommand *Command     `json:"launch_command,omitempty"`
	Environment   *Environment `json:"environment,omitempty"`
}

// A Command is a command line, redacted, one argument per element.
type Command struct {
	Args   []string   `json:"args"`
	Source FactSource `json:"source"`
}

// An Environment holds the serving variables of an allow-list, redacted.
type Environment struct {
	Variables map[string]string `json:"variables"`
	Source    FactSource        `json:"source"`
}

// A Model describes the weights that were served.
type Model struct {
	Repository        string `json:"repository,omitempty"`     // "org/name", or a local name
	Revision          string `json:"revision,omitempty"`       // branch, tag or commit
	WeightsDigest     string `json:"weights_digest,omitempty"` // "sha256:…" when known
	ServedName        string `json:"served_name,omitempty"`    // what requests ask for
	MaxModelLenTokens int32  `json:"max_model_len_tokens,omitempty"`
}

// Hardware describes the machine that served.
type Hardware struct {
	Type        string `json:"type,omitempty"` // "Discrete GPU", "Integrated GPU", "Unified memory", "CPU"
	GPUs        []GPU  `json:"gpus,omitempty"` // one element per GPU
	CPU         string `json:"cpu,omitempty"`  // model name
	MemoryBytes int64  `json:"memory_bytes,omitempty"`
	OS          string `json:"os,omitempty"`     // "linux"
	Kernel      string `json:"kernel,omitempty"` // release, without the host's name
}

// A GPU is one device.
type GPU struct {
	Name        string  `json:"name"` // as the driver says it
	VRAMBytes   int64   `json:"vram_bytes,omitempty"`
	Driver      string  `json:"driver,omitempty"`
	PowerLimitW float64 `json:"power_limit_w,omitempty"`
}

// A Server says what the collector could use of the server beside chat
// completions. It never holds an address.
type Server struct {
	Address string `json:"address,omitempty"` // kind only: "loopback", "private", "public"
	Metrics string `json:"metrics,omitempty"` // "available", or why not: "404 Not Found", "empty", "not Prometheus text", "timed out"
}

// A Plan is everything that was decided before the first request.
type Plan struct {
	ContextsTokens        []int32  `json:"contexts_tokens"` // ascending
	Concurrency           []int32  `json:"concurrency"`     // ascending
	PrefillContextsTokens []int32  `json:"prefill_contexts_tokens"`
	DurationUs            int64    `json:"duration_us"`       // length of a decode window
	MaxOutputTokens       int32    `json:"max_output_tokens"` // max_tokens of a decode request
	PrefillRepeats        int32    `json:"prefill_repeats"`   // samples per prefill context
	Order                 []string `json:"order"`             // cell names (Key.Name) in the order in which they run
	Seed                  int64    `json:"seed"`
	Salt                  string   `json:"salt"` // new for every run; the nonces of all prompts come from it and the seed
	PromptSet             string   `json:"prompt_set"`
	Sampling              Sampling `json:"sampling"`
	DecodeTest            string   `json:"decode_test"`    // "fixed duration"
	PrefillMode           string   `json:"prefill_mode"`   // "measured during decode warm-up"
	TokenCounting         string   `json:"token_counting"` // "continuous usage", "token ids", "final usage", "chunks"
	PromptCounting        string   `json:"prompt_counting,omitempty"`
	Text                  string   `json:"text"` // "full", "hash" or "none": what event files keep of the output
}

// Sampling is pinned so that a server's defaults can't change it.
type Sampling struct {
	Temperature float64 `json:"temperature"` // 0 is a real value
	TopP        float64 `json:"top_p"`
	IgnoreEOS   bool    `json:"ignore_eos"` // false when the server refused the option
	Seeded      bool    `json:"seeded"`     // every request had a seed of its own, told by plan and place
}

// A Capacity is what the server said about its KV cache, and what was made
// of it for leaving out cells.
type Capacity struct {
	KVCacheTokens int64             `json:"kv_cache_tokens,omitempty"` // over all engines
	Source        string            `json:"source,omitempty"`          // how KVCacheTokens was found
	Engines       int               `json:"engines,omitempty"`
	MaxNumSeqs    int32             `json:"max_num_seqs,omitempty"` // over all engines
	Raw           map[string]string `json:"raw,omitempty"`          // labels of vllm:cache_config_info as read; "<label>@<engine>" from the second engine on
}

// An Outcome says what became of a planned cell. It is all that the
// collector decides; statuses are computed from the events.
type Outcome string

const (
	OutcomeRecorded     Outcome = "recorded"      // its events are in its file
	OutcomeOverCapacity Outcome = "over_capacity" // not sent: the recorded capacity proves that it can't fit
	OutcomeFailed       Outcome = "failed"        // could not be measured; Reason says why; events there are may be in its file
	OutcomePending      Outcome = "pending"       // not reached, or interrupted before its end
)

// A Cell is one planned measurement.
type Cell struct {
	Phase         Phase   `json:"phase"`
	ContextTokens int32   `json:"context_tokens"`
	Concurrency   int32   `json:"concurrency"`
	Outcome       Outcome `json:"outcome"`
	Reason        string  `json:"reason,omitempty"`

	FileInfo // of the event file; empty when there is none

	PromptTokens  int32  `json:"prompt_tokens,omitempty"`  // real length of the prompt that was sent
	WindowOpenUs  *int64 `json:"window_open_us,omitempty"` // decode only
	WindowCloseUs *int64 `json:"window_close_us,omitempty"`
	Ready         *Ready `json:"ready,omitempty"` // decode only

	Notes []string `json:"notes,omitempty"` // what the collector noticed, in words
}

// Key returns the key of the cell's file.
func (c *Cell) Key() Key {
	return Key{Phase: c.Phase, ContextTokens: c.ContextTokens, Concurrency: c.Concurrency}
}

// Ready says why a decode window opened when it did.
type Ready struct {
	By       string `json:"by"` // "metrics and streams", "streams", "timeout"
	WaitedUs int64  `json:"waited_us"`
	TimedOut bool   `json:"timed_out"`
}

// A FileInfo says what a complete file of the run must look like.
type FileInfo struct {
	File   string `json:"file,omitempty"` // relative to the run directory, forward slashes
	Rows   int64  `json:"rows,omitempty"`
	Bytes  int64  `json:"bytes,omitempty"`
	SHA256 string `json:"sha256,omitempty"` // 64 lower-case hex digits
}

// A Warmup is the hidden warm-up's entry.
type Warmup struct {
	ContextTokens int32 `json:"context_tokens"` // planned, as in the file
	FileInfo
}

// Telemetry is the telemetry file's entry.
type Telemetry struct{ FileInfo }
