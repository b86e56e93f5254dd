package compare

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"speedmatrix/ingest"
	"speedmatrix/ingest/runlog"
)

// A FlagDifference is a flag or an environment variable of the launch
// commands that the sides do not share.
type FlagDifference struct {
	Name     string // "--max-num-seqs", or "VLLM_USE_V1" for a variable
	A, B     string // values; "" where the flag has none
	InA, InB bool   // whether the side has it at all
	Memory   bool   // it decides how many tokens the KV cache holds, or how many requests it takes
}

// ignoredFlags say where a server listens and what it is called; the model
// and its revision are compared on their own.
var ignoredFlags = []string{"--host", "--port", "--api-key", "--served-model-name", "--model", "--model-tag", "--revision"}

// ignoredVariables are for building.
var ignoredVariables = []string{"MAX_JOBS", "FLASHINFER_NVCC_THREADS", "NVCC_THREADS", "TORCHINDUCTOR_COMPILE_THREADS"}

var memoryFlags = []string{
	"--gpu-memory-utilization", "--kv-cache-dtype", "--kv-cache-memory-bytes", "--num-gpu-blocks-override", "--block-size",
	"--max-model-len", "--max-num-seqs", "--max-num-batched-tokens", "--swap-space", "--cpu-offload-gb",
	"--tensor-parallel-size", "--pipeline-parallel-size", "--data-parallel-size", "--enforce-eager", "--quantization", "--dtype",
}

var shortFlags = map[string]string{
	"-tp": "--tensor-parallel-size", "-pp": "--pipeline-parallel-size", "-dp": "--data-parallel-size", "-q": "--quantization",
	"--tp": "--tensor-parallel-size", "--pp": "--pipeline-parallel-size", "--dp": "--data-parallel-size",
}

// flags returns what a launch decided, by flag or variable: without what is
// different in every installation, in one spelling, whatever the order. It
// is nil when the launch command is not known.
func flags(m *runlog.Manifest) map[string]string {
	command := m.Engine.LaunchCommand
	if command == nil {
		return nil
	}
	tidy := tidier(m)
	out := map[string]string{}
	variable := func(name, value string) {
		if !slices.Contains(ignoredVariables, name) {
			out[name] = tidy(value)
		}
	}
	if env := m.Engine.Environment; env != nil {
		for name, value := range env.Variables {
			variable(name, value)
		}
	}
	args := command.Args
	for len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		name, value, assigned := strings.Cut(args[0], "=")
		if assigned && !strings.ContainsAny(name, "/ ") {
			variable(name, value)
		} else if path.Base(args[0]) != "env" {
			break
		}
		args = args[1:]
	}
	for len(args) > 0 {
		flag, value, joined := strings.Cut(args[0], "=")
		args = args[1:]
		if !isFlag(flag) {
			continue // the program, "serve", and the model
		}
		flag = strings.ReplaceAll(flag, "_", "-")
		flag = cmp.Or(shortFlags[flag], flag)
		var values []string
		if joined {
			values = []string{value}
		}
		for !joined && len(args) > 0 && !isFlag(args[0]) {
			values = append(values, args[0])
			args = args[1:]
		}
		if !slices.Contains(ignoredFlags, flag) && flag != "-m" && flag != "-c" { // Python's
			for i := range values {
				values[i] = tidy(values[i])
			}
			out[flag] = strings.Join(values, " ") // the last one counts, as in vLLM
		}
	}
	return out
}

// isFlag reports whether an argument begins with a dash and is no number.
func isFlag(s string) bool {
	return len(s) > 1 && s[0] == '-' && !strings.ContainsRune("0123456789.", rune(s[1]))
}

// tidier returns a function that brings a value into one form: JSON with
// sorted keys and no spaces, and without the engine's commit and version,
// which directories are named after.
func tidier(m *runlog.Manifest) func(string) string {
	var known []string
	if v := m.Engine.Version; v != nil && len(v.Value) >= 5 {
		known = append(known, v.Value, "<version>")
	}
	var commit string
	if c := m.Engine.Commit; c != nil && len(c.Value) >= 7 {
		commit = c.Value
	}
	names := strings.NewReplacer(known...)
	return func(s string) string {
		if len(s) > 1 && (s[0] == '{' || s[0] == '[') {
			dec := json.NewDecoder(strings.NewReader(s))
			dec.UseNumber()
			var v any
			if dec.Decode(&v) == nil && !dec.More() {
				if b, err := json.Marshal(v); err == nil {
					s = string(b)
				}
			}
		}
		s = names.Replace(s)
		if commit == "" {
			return s
		}
		for { // the commit at any length from 7 digits on
			at := strings.Index(s, commit[:7])
			if at < 0 {
				return s
			}
			n := 7
			for n < len(commit) && at+n < len(s) && s[at+n] == commit[n] {
				n++
			}
			s = s[:at] + "<commit>" + s[at+n:]
		}
	}
}

// flagText writes flags in one line, for comparing and for a profile's key.
func flagText(m *runlog.Manifest) string {
	f := flags(m)
	if f == nil {
		return ""
	}
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(f)) {
		part := name
		if f[name] != "" {
			part += "=" + f[name]
		}
		parts = append(parts, part)
	}
	if len(parts) == 0 {
		return "(none)"
	}
	return strings.Join(parts, " ")
}

// flagDifferences lists what two launches do not share, by name.
func flagDifferences(a, b *runlog.Manifest) []FlagDifference {
	fa, fb := flags(a), flags(b)
	if fa == nil || fb == nil {
		return nil
	}
	names := map[string]bool{}
	for name := range fa {
		names[name] = true
	}
	for name := range fb {
		names[name] = true
	}
	var out []FlagDifference
	for _, name := range slices.Sorted(maps.Keys(names)) {
		va, inA := fa[name]
		vb, inB := fb[name]
		if inA != inB || va != vb {
			out = append(out, FlagDifference{name, va, vb, inA, inB, slices.Contains(memoryFlags, name)})
		}
	}
	return out
}

// flagsAgainst returns what the first of the launches that is different does
// not share with a.
func flagsAgainst(a *ingest.Run, launches []*ingest.Run) []FlagDifference {
	for _, r := range launches {
		if diff := flagDifferences(a.Manifest, r.Manifest); len(diff) > 0 {
			return diff
		}
	}
	return nil
}

// flagSentence lists differences in one line.
func flagSentence(diff []FlagDifference) string {
	value := func(v string, set bool) string {
		switch {
		case !set:
			return "not set"
		case v == "":
			return "set"
		}
		return strconv.Quote(v)
	}
	var parts []string
	for _, d := range diff {
		parts = append(parts, fmt.Sprintf("%s (%s → %s)", d.Name, value(d.A, d.InA), value(d.B, d.InB)))
	}
	return strings.Join(parts, ", ")
}
