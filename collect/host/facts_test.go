package host

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseCommand(t *testing.T) {
	for _, tt := range []struct {
		name string
		args []string
		want CommandFacts
	}{
		{"a model behind serve", []string{"vllm", "serve", "org/m", "--port", "8000"}, CommandFacts{Model: "org/m"}},
		{"flags of all spellings",
			[]string{"python", "-m", "vllm.entrypoints.openai.api_server", "--model=org/m", "--revision", "main", "--quantization", "fp8", "--max_num_seqs=64", "--max-model-len", "4096", "-tp", "2", "--pipeline-parallel-size=3", "--data_parallel_size", "4", "--dtype", "auto", "--kv-cache-dtype", "fp8"},
			CommandFacts{Model: "org/m", Revision: "main", Quantization: "fp8", KVCacheDType: "fp8", MaxNumSeqs: 64, MaxModelLen: 4096, TensorParallel: 2, PipelineParallel: 3, DataParallel: 4}},
		{"several served names", []string{"vllm", "serve", "org/m", "--served-model-name", "a", "b", "--dtype=bfloat16"}, CommandFacts{Model: "org/m", ServedNames: []string{"a", "b"}, DType: "bfloat16"}},
		{"the last flag counts", []string{"vllm", "serve", "org/m", "--max-num-seqs", "8", "--max-num-seqs", "16"}, CommandFacts{Model: "org/m", MaxNumSeqs: 16}},
		{"a flag without a value is none", []string{"vllm", "serve", "--revision", "--quantization"}, CommandFacts{}},
		{"a number with a unit is not read", []string{"vllm", "serve", "org/m", "--max-model-len", "128k", "--max-num-seqs", "-1"}, CommandFacts{Model: "org/m"}},
		{"a local path is shortened", []string{"vllm", "serve", "/home/ann/models/tiny/"}, CommandFacts{Model: "tiny"}},
		{"a cache path names repository and commit", []string{"vllm", "serve", "/root/.cache/huggingface/hub/models--Org-1--Tiny-2.1/snapshots/0123abc"}, CommandFacts{Model: "Org-1/Tiny-2.1", Revision: "0123abc"}},
		{"nothing", nil, CommandFacts{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if d := cmp.Diff(tt.want, ParseCommand(tt.args)); d != "" {
				t.Errorf("-want +got:\n%s", d)
			}
		})
	}
}

func TestModelName(t *testing.T) {
	for in, want := range map[string]string{
		"org/m": "org/m", "m": "m", "./out/m": "m", "/srv/m/": "m", `C:\models\m`: "m", "~/m": "m", "a/b/c": "c", "s3://bucket/m": "m", "": "",
	} {
		if got, _ := ModelName(in); got != want {
			t.Errorf("ModelName(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestVersion(t *testing.T) {
	for _, tt := range []struct{ version, commit, build, backend string }{
		{"0.30.1rc1.dev452+g73a583112", "73a583112", "", ""},
		{"0.30.1rc1.dev452+g73a583112.cu132", "73a583112", "cuda-13.2", "cuda"},
		{"0.27.2.dev123+gabcdef0.d20260820.precompiled", "abcdef0", "", ""},
		{"0.28.0+cu118", "", "cuda-11.8", "cuda"},
		{"0.28.0+rocm641", "", "rocm-6.4.1", "rocm"},
		{"0.28.0+cpu", "", "cpu", "cpu"},
		{"0.28.0", "", "", ""},
		{"0.28.0+gpu", "", "", ""},
		{"", "", "", ""},
	} {
		commit, build := VersionCommit(tt.version), VersionBuild(tt.version)
		if commit != tt.commit || build != tt.build || BuildBackend(build) != tt.backend {
			t.Errorf("%q: commit %q, build %q, backend %q, want %q, %q, %q", tt.version, commit, build, BuildBackend(build), tt.commit, tt.build, tt.backend)
		}
	}
}
