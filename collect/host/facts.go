package host

import (
	"path"
	"regexp"
	"strconv"
	"strings"
)

// CommandFacts is what a launch command says about what it serves. What it
// does not say is "", nil or 0.
type CommandFacts struct {
	Model            string   // repository "org/name", or the last part of a local path
	Revision         string   // --revision, or the snapshot of a cache path
	Quantization     string   // --quantization, as given
	DType            string   // --dtype, as given; "" for "auto"
	KVCacheDType     string   // --kv-cache-dtype; "" for "auto"
	ServedNames      []string // --served-model-name
	MaxModelLen      int32    // --max-model-len where it is a plain number
	MaxNumSeqs       int32    // --max-num-seqs, per engine
	TensorParallel   int      // --tensor-parallel-size
	PipelineParallel int      // --pipeline-parallel-size
	DataParallel     int      // --data-parallel-size
}

// ParseCommand reads the arguments of a vLLM server, as `vllm serve MODEL …`
// or `python -m vllm.entrypoints.openai.api_server --model MODEL …`: flags as
// "--flag value" or "--flag=value", with dashes or underscores; the last one
// counts.
func ParseCommand(args []string) CommandFacts {
	var f CommandFacts
	for i := 0; i < len(args); i++ {
		if args[i] == "serve" && f.Model == "" && i+1 < len(args) && !strings.HasPrefix(args[i+1], "-") {
			f.Model = args[i+1]
			continue
		}
		if !strings.HasPrefix(args[i], "-") {
			continue
		}
		flag, value, joined := strings.Cut(args[i], "=")
		var values []string
		if joined {
			values = []string{value}
		} else {
			for _, a := range args[i+1:] {
				if strings.HasPrefix(a, "-") {
					break
				}
				values = append(values, a)
			}
		}
		if len(values) == 0 {
			continue
		}
		first := values[0]
		switch strings.ReplaceAll(strings.TrimLeft(flag, "-"), "_", "-") {
		case "model", "model-tag":
			f.Model = first
		case "revision":
			f.Revision = first
		case "quantization", "q":
			f.Quantization = first
		case "dtype":
			f.DType = notAuto(first)
		case "kv-cache-dtype":
			f.KVCacheDType = notAuto(first)
		case "served-model-name":
			f.ServedNames = values
		case "max-model-len":
			f.MaxModelLen = int32(count(first))
		case "max-num-seqs":
			f.MaxNumSeqs = int32(count(first))
		case "tensor-parallel-size", "tp":
			f.TensorParallel = count(first)
		case "pipeline-parallel-size", "pp":
			f.PipelineParallel = count(first)
		case "data-parallel-size", "dp":
			f.DataParallel = count(first)
		}
	}
	f.Model, f.Revision = modelName(f.Model, f.Revision)
	return f
}

func notAuto(s string) string {
	if s == "auto" {
		return ""
	}
	return s
}

// count parses a positive number, 0 for anything else.
func count(s string) int {
	n, err := strconv.ParseInt(s, 10, 32)
	if err != nil || n < 0 {
		return 0
	}
	return int(n)
}

// ModelName returns the repository, or for a path its last part, because a
// path says where things lie on one machine. A path into a Hugging Face
// cache, ".../models--org--name/snapshots/<commit>", names both repository
// and revision; revision is "" otherwise.
func ModelName(model string) (name, revision string) { return modelName(model, "") }

func modelName(model, revision string) (string, string) {
	slashed := strings.TrimRight(strings.ReplaceAll(model, `\`, "/"), "/")
	if m := regexp.MustCompile(`models--([^/]+?)--([^/]+)/snapshots/([0-9A-Za-z._-]+)$`).FindStringSubmatch(slashed); m != nil {
		if revision == "" {
			revision = m[3]
		}
		return m[1] + "/" + m[2], revision
	}
	if strings.Count(slashed, "/") > 1 || strings.HasPrefix(slashed, "/") || strings.HasPrefix(slashed, ".") ||
		strings.HasPrefix(slashed, "~") || strings.HasPrefix(slashed, "$") || strings.Contains(slashed, ":/") {
		return path.Base(slashed), revision
	}
	return slashed, revision
}

// VersionCommit returns the commit that an engine's version names:
// "73a583112" of "0.30.1rc1.dev452+g73a583112.cu132"; "" where it names none.
func VersionCommit(version string) string {
	commit := regexp.MustCompile(`^g([0-9a-f]{7,40})$`)
	for _, part := range localParts(version) {
		if m := commit.FindStringSubmatch(part); m != nil {
			return m[1]
		}
	}
	return ""
}

// VersionBuild returns the platform that an engine's version names, as
// "cuda-13.2" of "0.30.0+cu132", "rocm-6.4.1", "cpu"; "" where it names none.
func VersionBuild(version string) string {
	platform := regexp.MustCompile(`^(cu|cuda|rocm)(\d{2,4})$`)
	for _, part := range localParts(version) {
		switch part {
		case "cpu", "xpu", "tpu", "hpu", "neuron":
			return part
		}
		m := platform.FindStringSubmatch(part)
		switch {
		case m == nil:
		case m[1] == "rocm": // 641 is 6.4.1
			return "rocm-" + strings.Join(strings.Split(m[2], ""), ".")
		default: // 132 is 13.2
			last := len(m[2]) - 1
			return "cuda-" + m[2][:last] + "." + m[2][last:]
		}
	}
	return ""
}

// BuildBackend returns the backend of a build: "cuda" of "cuda-13.2".
func BuildBackend(build string) string {
	backend, _, _ := strings.Cut(build, "-")
	return backend
}

// localParts returns the parts of a version behind its plus sign.
func localParts(version string) []string {
	_, local, _ := strings.Cut(version, "+")
	return strings.FieldsFunc(strings.ToLower(local), func(r rune) bool { return r == '.' || r == '-' || r == '_' })
}
