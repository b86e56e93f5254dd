package shell_test

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"speedmatrix/render/internal/shell"
)

func TestQuote(t *testing.T) {
	for _, c := range []struct{ rule, arg, want string }{
		{"plain", "--max-model-len", "--max-model-len"},
		{"empty", "", "''"},
		{"placeholder of a secret", "<redacted>", "<redacted>"},
		{"placeholder after a name", "--api-key=<redacted>", "--api-key=<redacted>"},
		{"other angle brackets", "<b>", "'<b>'"},
		{"home directory", "$HOME/env/bin/vllm", `"$HOME/env/bin/vllm"`},
		{"home directory with dangers", "$HOME/a\"b`c\\d$e", "\"$HOME/a\\\"b\\`c\\\\d\\$e\""},
		{"another variable", "$HOMEX", `'$HOMEX'`},
		{"JSON", `{"enable_thinking":true}`, `'{"enable_thinking":true}'`},
		{"single quote", "it's", `'it'\''s'`},
		{"pipe", "a | tee log", "'a | tee log'"},
		{"line break", "a\nb", `$'a\nb'`},
		{"line separator", "a\u2028b", `$'a\u2028b'`},
		{"right-to-left override", "a\u202e'b", `$'a\u202e\'b'`},
		{"NUL", "a\x00b", `$'a\u0000b'`},
	} {
		if got := shell.Quote(c.arg); got != c.want {
			t.Errorf("%s: Quote(%q) = %s, want %s", c.rule, c.arg, got, c.want)
		}
	}
}

func TestLine(t *testing.T) {
	for _, c := range []struct {
		rule string
		args []string
		env  map[string]string
		want string
	}{
		{"nothing known", nil, map[string]string{"A": "1"}, ""},
		{"arguments", []string{"vllm", "serve", "a b"}, nil, "vllm serve 'a b'"},
		{"variables first, sorted", []string{"vllm", "serve"}, map[string]string{"VLLM_B": "x y", "A": "", "C": "2"}, "env A= C=2 VLLM_B='x y' vllm serve"},
		{"an env of its own keeps its order", []string{"env", "Z=1", "A=2", "vllm"}, nil, "env Z=1 A=2 vllm"},
		{"an env of its own wins", []string{"env", "Z=1", "vllm", "X=1"}, map[string]string{"Z": "9", "B": "2"}, "env Z=1 B=2 vllm X=1"},
		{"a whole line as one argument", []string{"vllm serve m --port 8000"}, nil, "vllm serve m --port 8000"},
	} {
		if got := shell.Line(c.args, c.env); got != c.want {
			t.Errorf("%s: got %s, want %s", c.rule, got, c.want)
		}
	}
}

// A real shell must read back what Quote wrote.
func TestQuoteIsReadBackByAShell(t *testing.T) {
	for _, arg := range []string{"a b", "it's", `{"a":"$b"}`, "a\nb\tc", "`x`", `\`, "*", "~", "#", "!x", "a\u202eb", "日本", "-"} {
		cmd := exec.Command("bash", "-c", "printf %s "+shell.Quote(arg))
		cmd.Env = []string{"LC_ALL=C.UTF-8"}
		out, err := cmd.CombinedOutput()
		if err != nil || string(out) != arg {
			t.Errorf("bash reads %s as %q (%v), want %q", shell.Quote(arg), out, err, arg)
		}
	}
	cmd := exec.Command("bash", "-c", "printf %s "+shell.Quote("$HOME/a b"))
	cmd.Env = []string{"HOME=/h"}
	if out, _ := cmd.CombinedOutput(); strings.TrimSpace(string(out)) != "/h/a b" {
		t.Errorf("bash reads %s as %q, want %q", shell.Quote("$HOME/a b"), out, "/h/a b")
	}
}

func TestPartsAreTheLine(t *testing.T) {
	for _, c := range []struct {
		rule string
		args []string
		env  map[string]string
		want []string
	}{
		{"nothing", nil, nil, nil},
		{"a flag with its values", []string{"vllm", "serve", "m", "--port", "1", "-q", "--a", "b", "c d"}, nil, []string{"vllm serve m", "--port 1", "-q", "--a b 'c d'"}},
		{"environment stays in front", []string{"serve", "--x"}, map[string]string{"A": "1"}, []string{"env A=1 serve", "--x"}},
		{"a whole command line stays whole", []string{"vllm serve --x"}, nil, []string{"vllm serve --x"}},
		{"a flag first", []string{"--x", "y"}, nil, []string{"--x y"}},
	} {
		got := shell.Parts(c.args, c.env)
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: got %q, want %q", c.rule, got, c.want)
		}
		if line := shell.Line(c.args, c.env); strings.Join(got, " ") != line {
			t.Errorf("%s: %q are not the line %q", c.rule, got, line)
		}
	}
}
