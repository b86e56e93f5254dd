package host

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestRedactArgs(t *testing.T) {
	for _, tt := range []struct {
		name     string
		in, want []string
	}{
		{"a key by its flag",
			[]string{"vllm", "serve", "org/m", "--api-key", "sk-live-Z9", "--port", "8000"},
			[]string{"vllm", "serve", "org/m", "--api-key", "<redacted>", "--port", "8000"}},
		{"a key behind an equals sign",
			[]string{"vllm", "serve", "org/m", "--api-key=k1", "--port=8000"},
			[]string{"vllm", "serve", "org/m", "--api-key=<redacted>", "--port=8000"}},
		{"several keys, with an underscore",
			[]string{"vllm", "serve", "org/m", "--api_key", "k1", "k2", "--dtype", "auto"},
			[]string{"vllm", "serve", "org/m", "--api_key", "<redacted>", "<redacted>", "--dtype", "auto"}},
		{"a variable before the command, and a token flag",
			[]string{"HF_TOKEN=hf_abc", "vllm", "serve", "org/m", "--hf-token", "hf_abc", "rest"},
			[]string{"HF_TOKEN=<redacted>", "vllm", "serve", "org/m", "--hf-token", "<redacted>", "rest"}},
		{"a password in an address, and a header",
			[]string{"bench", "--base-url", "https://user:pw@host.example/v1", "--header", "X-Api-Key: k1"},
			[]string{"bench", "--base-url", "https://<redacted>@host.example/v1", "--header", "X-Api-Key: <redacted>"}},
		{"a bearer header keeps its scheme, a harmless one stays",
			[]string{"bench", "-H", "Authorization: Bearer abc", "-H", "Accept: text/plain", "--header=Cookie: a=b; c=d"},
			[]string{"bench", "-H", "Authorization: Bearer <redacted>", "-H", "Accept: text/plain", "--header=Cookie: <redacted>"}},
		{"JSON in an argument",
			[]string{"--kv-transfer-config", `{"kv_role":"kv_both", "extra":{"token":"x","api_keys":["a","b"],"n":1}}`, `--x={"password": "a\"b"}`},
			[]string{"--kv-transfer-config", `{"kv_role":"kv_both", "extra":{"token":"<redacted>","api_keys":<redacted>,"n":1}}`, `--x={"password": "<redacted>"}`}},
		{"names that only sound like secrets",
			[]string{"--max-num-batched-tokens", "8192", "--tokenizer", "org/t", "--tokenizer-mode=auto", "--ssl-keyfile", "/etc/k.pem", "--api-key-file", "/run/k", "--num_speculative_tokens", "15", "--max-tokens=4"},
			[]string{"--max-num-batched-tokens", "8192", "--tokenizer", "org/t", "--tokenizer-mode=auto", "--ssl-keyfile", "/etc/k.pem", "--api-key-file", "/run/k", "--num_speculative_tokens", "15", "--max-tokens=4"}},
		{"homes",
			[]string{"/home/ann/env/bin/vllm", "--model=/root/m", "--download-dir", "/Users/Ann/c", `C:\Users\Ann\x`, "/rootfs", "/data/x", "https://h/home/page", "PATH=/home/ann/bin:/home/bob/bin"},
			[]string{"$HOME/env/bin/vllm", "--model=$HOME/m", "--download-dir", "$HOME/c", `$HOME\x`, "/rootfs", "/data/x", "https://h/home/page", "PATH=$HOME/bin:$HOME/bin"}},
		{"a flag without a value eats nothing", []string{"--token", "--port", "1", "--api-key"}, []string{"--token", "--port", "1", "--api-key"}},
		{"a login", []string{"curl", "-u", "me:pw", "--user", "1000:1000"}, []string{"curl", "-u", "<redacted>", "--user", "1000:1000"}},
		{"docker's variables", []string{"docker", "run", "-e", "HUGGING_FACE_HUB_TOKEN=x", "-e", "VLLM_USE_V1=1"}, []string{"docker", "run", "-e", "HUGGING_FACE_HUB_TOKEN=<redacted>", "-e", "VLLM_USE_V1=1"}},
		{"the reference's command stays",
			[]string{"env", "MAX_JOBS=2", "vllm", "serve", "poolside/Laguna-XS-2.1-INT4", "--default-chat-template-kwargs", `{"enable_thinking":true}`, "--speculative-config", `{"model":"poolside/Laguna-XS-2.1-DFlash-INT4","num_speculative_tokens":15,"method":"dflash"}`},
			[]string{"env", "MAX_JOBS=2", "vllm", "serve", "poolside/Laguna-XS-2.1-INT4", "--default-chat-template-kwargs", `{"enable_thinking":true}`, "--speculative-config", `{"model":"poolside/Laguna-XS-2.1-DFlash-INT4","num_speculative_tokens":15,"method":"dflash"}`}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := RedactArgs(tt.in)
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Errorf("-want +got:\n%s", d)
			}
			if d := cmp.Diff(got, RedactArgs(got)); d != "" {
				t.Errorf("a second time changes it -once +twice:\n%s", d)
			}
		})
	}
}

func TestRedactText(t *testing.T) {
	for _, tt := range []struct{ name, in, want string }{
		{"a command as one string", "vllm serve org/m --api-key sk-live-Z9 --port 8000", "vllm serve org/m --api-key <redacted> --port 8000"},
		{"several keys in a command", "vllm serve org/m --api-key k1 k2 --port 8000", "vllm serve org/m --api-key <redacted> <redacted> --port 8000"},
		{"a sentence about a flag", "--api-key KEY goes first", "--api-key <redacted> goes first"},
		{"variables", "HF_TOKEN=hf_abc vllm serve org/m --hf-token hf_abc", "HF_TOKEN=<redacted> vllm serve org/m --hf-token <redacted>"},
		{"an address and a quoted header", `bench --base-url https://user:pw@host.example/v1 --header "X-Api-Key: k1" -n 3`, `bench --base-url https://<redacted>@host.example/v1 --header "X-Api-Key: <redacted>" -n 3`},
		{"an address with a token for a user", "git+https://ghx@h.example/r@v1", "git+https://<redacted>@h.example/r@v1"},
		{"an address without a login", "https://h.example/r@v1?x=1", "https://h.example/r@v1?x=1"},
		{"a password with a slash and an at sign", "http://u:p/w@q@h/x", "http://<redacted>@h/x"},
		{"a query", "GET /x?api_key=abc&n=2", "GET /x?api_key=<redacted>&n=2"},
		{"an authorization line", "Authorization: Bearer abc.def\nNext: 1", "Authorization: Bearer <redacted>\nNext: 1"},
		{"a bearer token anywhere", "sent Bearer abc-123 twice", "sent Bearer <redacted> twice"},
		{"a bearer of something else", "the bearer waits", "the bearer waits"},
		{"JSON", `{"token": "a\"b", "tokens": 3, "password":null}`, `{"token": "<redacted>", "tokens": 3, "password":null}`},
		{"JSON inside JSON", `{"a":"{\"api_key\": \"x y\", \"b\": 1}"}`, `{"a":"{\"api_key\": \"<redacted>\", \"b\": 1}"}`},
		{"Python's spelling", `{'api_key': 'x y', 'port': 1}`, `{'api_key': '<redacted>', 'port': 1}`},
		{"well-known shapes", "keys sk-test-0001 AKIAABCDEFGHIJKLMNOP eyJhbGciOiJI.eyJzdWIi.abc ghp_0123456789abcdefghij hf_0123456789abcdefgh", "keys <redacted> <redacted> <redacted> <redacted> <redacted>"},
		{"not shapes", "risk-averse sk-it hf_overrides disk-usage-high", "risk-averse sk-it hf_overrides disk-usage-high"},
		{"the server's own words", "max_tokens=9 cannot be greater than max_model_len=5 (parameter=max_tokens, value=9)", "max_tokens=9 cannot be greater than max_model_len=5 (parameter=max_tokens, value=9)"},
		{"a context error", "This model's maximum context length is 2048 tokens. However, you requested 10 output tokens.", "This model's maximum context length is 2048 tokens. However, you requested 10 output tokens."},
		{"nothing", "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := RedactText(tt.in)
			if got != tt.want {
				t.Errorf("RedactText(%q)\n = %q\nwant %q", tt.in, got, tt.want)
			}
			if again := RedactText(got); again != got {
				t.Errorf("a second time gives %q, want %q", again, got)
			}
		})
	}
}

func TestRedactEnv(t *testing.T) {
	got := RedactEnv(map[string]string{"VLLM_API_KEY": "k", "OMP_NUM_THREADS": "2", "VLLM_CACHE_ROOT": "/home/ann/c", "EMPTY_TOKEN": ""})
	want := map[string]string{"VLLM_API_KEY": "<redacted>", "OMP_NUM_THREADS": "2", "VLLM_CACHE_ROOT": "$HOME/c", "EMPTY_TOKEN": ""}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	if RedactEnv(nil) != nil {
		t.Error("an environment that is not known became known")
	}
}

func TestRedactorKnowsTheMachine(t *testing.T) {
	r := NewRedactor(nil, "/data/people/annette", "lab-box-17.example.org")
	for in, want := range map[string]string{
		"on lab-box-17: up":                             "on <host>: up",
		"LAB-BOX-17.example.org":                        "<host>",
		"lab-box-170 and xlab-box-17":                   "lab-box-170 and xlab-box-17",
		"lab-box-17 lab-box-17":                         "<host> <host>",
		"/data/people/annette/m":                        "$HOME/m",
		"/data/people/annette":                          "$HOME",
		"/data/people/annette2/m":                       "/data/people/annette2/m",
		"/scratch/annette/annette/m":                    "/scratch/<user>/<user>/m",
		"/usr/lib/x /home/other/y":                      "/usr/lib/x $HOME/y",
		"file:///home/other/y":                          "file://$HOME/y",
		`{"dir":"C:\\Users\\Other\\m"}`:                 `{"dir":"$HOME\\m"}`,
		"dial tcp: lookup lab-box-17 on 10.0.0.1:53: x": "dial tcp: lookup <host> on 10.0.0.1:53: x",
	} {
		if got := r.Text(in); got != want {
			t.Errorf("Text(%q) = %q, want %q", in, got, want)
		}
	}
	for _, name := range []string{"", "localhost", "vllm", "linux"} {
		if got := NewRedactor(nil, "", name).Text("vllm on linux at localhost"); got != "vllm on linux at localhost" {
			t.Errorf("a machine called %q: %q, want the text as it is", name, got)
		}
	}
}

func TestRedactorKnowsTheSecrets(t *testing.T) {
	r := NewRedactor([]string{"Bearer sk/te+st&1 \"q\"", "abcd", "k1"}, "", "")
	secret := `sk/te+st&1 "q"`
	quoted, _ := json.Marshal(secret)
	for name, in := range map[string]string{
		"plain": secret, "query": url.QueryEscape(secret), "path": url.PathEscape(secret), "lower escapes": strings.ToLower(url.QueryEscape(secret)),
		"JSON": string(quoted), "hexadecimal": hex.EncodeToString([]byte(secret)),
		"base64": base64.StdEncoding.EncodeToString([]byte(secret)), "basic login": base64.StdEncoding.EncodeToString([]byte("u:" + secret)),
		"base64 for addresses": base64.RawURLEncoding.EncodeToString([]byte("abc:" + secret + "xyz")),
	} {
		got := r.Text("before " + in + " after")
		want := "before <redacted> after"
		if name == "JSON" {
			want = `before "<redacted>" after`
		}
		if got != want {
			t.Errorf("%s: Text(%q) = %q, want %q", name, in, got, want)
		}
	}
	// A short secret goes as a word; one of three letters is none.
	if got := r.Text("abcd xabcdx (abcd) k1"); got != "<redacted> xabcdx (<redacted>) k1" {
		t.Errorf("short secrets: got %q", got)
	}
}

func FuzzRedact(f *testing.F) {
	f.Add("sk-live-0123456789", "vllm serve m --api-key ", " --port 1", "lab-box-17")
	f.Add("pässwörd&=1", `{"token":"`, `"}`, "h")
	f.Add("a b c d e f", "http://u:", "@h/", "")
	f.Add("00000000", "-", "0", "0")
	f.Add("0000000000", "Authorization: Basic ", "\n/home/x/y", "vm")
	f.Fuzz(func(t *testing.T, secret, before, after, hostname string) {
		secret = strings.TrimSpace(strings.ToValidUTF8(secret, ""))
		if scheme, _, ok := strings.Cut(secret, " "); len(secret) < minAnywhere || ok && isScheme(scheme) || strings.Contains("<redacted>$HOME<host>", secret) {
			t.Skip("no secret")
		}
		r := NewRedactor([]string{secret}, "/home/x", hostname)
		forms := map[string]string{
			"plain": secret, "query": url.QueryEscape(secret),
			"base64": base64.StdEncoding.EncodeToString([]byte(secret)),
		}
		for name, form := range forms {
			got := r.Text(before + form + after)
			// What stands around may itself hold the form in part, but no whole
			// form may be left unless replacing made it up.
			if strings.Contains(got, form) && !strings.ContainsAny(form, "<>$") {
				t.Errorf("%s form %q is left in %q", name, form, got)
			}
			args := r.Args([]string{"vllm", before + form + after, "--token", form, before, "--x=" + form, after})
			if len(args) != 7 {
				t.Fatalf("7 arguments became %d", len(args))
			}
			for _, a := range args {
				if strings.Contains(a, form) && !strings.ContainsAny(form, "<>$") {
					t.Errorf("%s form %q is left in argument %q", name, form, a)
				}
			}
		}
	})
}

func FuzzRedactByPlace(f *testing.F) {
	f.Add("Zx9Zx9Zx9", 8000)
	f.Add("q,;)}w", 0)
	f.Fuzz(func(t *testing.T, secret string, port int) {
		for _, c := range secret {
			if c <= ' ' || c > '~' || strings.ContainsRune("'\"`&\\", c) {
				t.Skip("not a word on a command line")
			}
		}
		if len(secret) < 6 || strings.HasPrefix(secret, "-") || strings.ContainsAny(secret, "<>$") || strings.TrimRight(secret, `,;)]}`) != secret {
			t.Skip("not a secret that only its place tells")
		}
		for _, text := range []string{
			"vllm serve org/m --api-key " + secret + " --port 8000", "HF_TOKEN=" + secret + " vllm serve org/m",
			"--api-key=" + secret + " x", `--header "X-Api-Key: ` + secret + `"`, `{"token":"` + secret + `"}`, "Authorization: Bearer " + secret,
		} {
			if got := RedactText(text); strings.Contains(got, secret) && !strings.Contains("vllm serve org/m --api-key --port 8000 HF_TOKEN= --header X-Api-Key: Authorization: Bearer <redacted>", secret) {
				t.Errorf("RedactText(%q) = %q still has the secret", text, got)
			}
		}
	})
}
