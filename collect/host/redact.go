package host

import (
	"cmp"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Redacted stands where a secret was.
const Redacted = "<redacted>"

// A Redactor takes out of texts what nobody else should read: secrets, by
// their value where it is known and by their look and place where it is
// not; home directories, which become $HOME; and this machine's name, which
// becomes <host>. Everything else stays as it is, in its order. Redacting
// twice is the same as once.
type Redactor struct {
	exact    []string       // forms of the known secrets, longest first
	words    *regexp.Regexp // known secrets too short to be replaced inside words; nil for none
	encoded  []string       // what any base64 of the known secrets has in common
	home     string
	user     *regexp.Regexp // the user's name as a part of a path; nil for none
	hostname *regexp.Regexp // nil for none
	address  *regexp.Regexp // nil for none
}

// Bounds on what is replaced by value. A secret shorter than minSecret is no
// secret, and replacing it would spoil every text; one shorter than
// minAnywhere is replaced only as a whole word.
const (
	minSecret   = 4
	minAnywhere = 8
)

// NewRedactor returns a redactor that knows these secrets (keys, tokens,
// header values), the home directory, the machine's name, and addresses:
// further names and IP addresses of this machine and of the server, which
// are replaced only as a whole. Each may be missing.
func NewRedactor(secrets []string, home, hostname string, addresses ...string) *Redactor {
	r := &Redactor{}
	var words []string
	for _, s := range secrets {
		s = strings.TrimSpace(valid(s))
		if scheme, rest, ok := strings.Cut(s, " "); ok && isScheme(scheme) {
			s = strings.TrimSpace(rest) // "Bearer <key>": the key is the secret
		}
		if len(s) < minSecret {
			continue
		}
		for _, form := range forms(s) {
			if len(form) < minAnywhere {
				words = append(words, regexp.QuoteMeta(form))
			} else {
				r.exact = append(r.exact, form)
			}
		}
		r.encoded = append(r.encoded, base64Cores(s)...)
	}
	byLength := func(a, b string) int { return len(b) - len(a) }
	slices.SortStableFunc(r.exact, byLength)
	slices.SortStableFunc(words, byLength)
	if len(words) > 0 {
		r.words = regexp.MustCompile(`(^|[^A-Za-z0-9])(?:` + strings.Join(words, "|") + `)($|[^A-Za-z0-9])`)
	}
	home, hostname = strings.TrimRight(valid(home), `/\`), valid(hostname)
	if len(home) > 1 && !strings.HasSuffix(home, ":") {
		r.home = home
		if name := home[strings.LastIndexAny(home, `/\`)+1:]; len(name) > 2 && len(name) <= 255 && name != "root" {
			r.user = regexp.MustCompile(`([/\\])` + regexp.QuoteMeta(name) + `([/\\]|$)`)
		}
	}
	short, _, _ := strings.Cut(hostname, ".")
	switch strings.ToLower(short) {
	case "", "localhost", "vllm", "linux", "host", "server", "gpu", "cpu", "cuda": // no one's name, and words of every text
	default:
		if len(hostname) > 255 {
			break // longer than any system allows
		}
		r.hostname = regexp.MustCompile(`(?i)(^|[^A-Za-z0-9])` + regexp.QuoteMeta(short) +
			`(?:` + regexp.QuoteMeta(strings.TrimPrefix(hostname, short)) + `)?($|[^A-Za-z0-9])`)
	}
	r.address = addressPattern(addresses)
	return r
}

// addressPattern finds any of the addresses as a whole word; nil when none
// of them says anything of one machine.
func addressPattern(addresses []string) *regexp.Regexp {
	var words []string
	for _, a := range addresses {
		a = strings.ToLower(strings.TrimSuffix(valid(a), "."))
		if ip, err := netip.ParseAddr(a); err == nil {
			if ip.IsLoopback() || ip.IsUnspecified() {
				continue
			}
		} else if len(a) < minSecret || len(a) > 255 || a == "localhost" || strings.HasSuffix(a, ".localhost") {
			continue
		}
		words = append(words, regexp.QuoteMeta(a))
	}
	if len(words) == 0 {
		return nil
	}
	slices.SortFunc(words, func(a, b string) int { return cmp.Or(len(b)-len(a), strings.Compare(a, b)) })
	return regexp.MustCompile(`(?i)(^|[^A-Za-z0-9])(?:` + strings.Join(words, "|") + `)($|[^A-Za-z0-9])`)
}

// valid makes foreign bytes what they are in a text: valid UTF-8.
func valid(s string) string { return strings.ToValidUTF8(s, "\ufffd") }

// forms returns the spellings of a secret in which it can stand in a text.
func forms(s string) []string {
	quoted, _ := json.Marshal(s)
	inner := string(quoted[1 : len(quoted)-1])
	all := []string{
		s, url.QueryEscape(s), url.PathEscape(s), inner,
		strings.NewReplacer(`\u0026`, "&", `\u003c`, "<", `\u003e`, ">").Replace(inner), // as other encoders do
		hex.EncodeToString([]byte(s)), strings.ToUpper(hex.EncodeToString([]byte(s))),
	}
	for _, f := range all[1:3] {
		all = append(all, lowerEscapes(f))
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func lowerEscapes(s string) string {
	return regexp.MustCompile(`%[0-9A-F]{2}`).ReplaceAllStringFunc(s, strings.ToLower)
}

// base64Cores returns, for each of the three positions that a secret can
// have in an encoded text, the characters that depend on it alone, in both
// alphabets.
func base64Cores(s string) []string {
	var cores []string
	for _, enc := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		for before := range 3 {
			text := enc.EncodeToString(append(make([]byte, before), s...))
			core := text[(before*8+5)/6 : (before+len(s))*8/6]
			if len(core) >= minAnywhere {
				cores = append(cores, core)
			}
		}
	}
	slices.Sort(cores)
	return slices.Compact(cores)
}

// RedactText is Text of a Redactor that knows no secret by value.
func RedactText(s string) string { return new(Redactor).Text(s) }

// RedactArgs is Args of a Redactor that knows no secret by value.
func RedactArgs(args []string) []string { return new(Redactor).Args(args) }

// RedactEnv is Env of a Redactor that knows no secret by value.
func RedactEnv(env map[string]string) map[string]string { return new(Redactor).Env(env) }

// Text redacts a text: an error message, a fact, a command line as one
// string. The result is valid UTF-8.
func (r *Redactor) Text(s string) string {
	return r.text(s, strings.Contains(s, " serve ") || strings.Contains(s, "api_server"))
}

func (r *Redactor) text(s string, command bool) string {
	s = r.known(valid(s))
	s = redactURLs(s)
	s = redactPairs(s, command)
	s = bearer.ReplaceAllStringFunc(s, redactBearer)
	s = shapes.ReplaceAllString(s, Redacted)
	s = r.paths(s)
	if r.address != nil {
		s = replaceWords(r.address, s, "<host>")
	}
	if r.hostname != nil {
		s = replaceWords(r.hostname, s, "<host>")
	}
	return r.known(s)
}

// Secrets replaces the known secrets and nothing else: for messages that
// stay on this machine, where paths and names help.
func (r *Redactor) Secrets(s string) string { return r.known(valid(s)) }

// Args redacts a command line, one argument per element.
func (r *Redactor) Args(args []string) []string {
	whole := make([]string, len(args)) // known secrets first: one may hold an equals sign
	for i, a := range args {
		whole[i] = r.known(valid(a))
	}
	args = whole
	out := make([]string, len(args))
	for i := 0; i < len(args); i++ {
		a := args[i]
		name, value, joined := strings.Cut(a, "=")
		switch {
		case !strings.HasPrefix(a, "-"):
			if joined && secretName(name) && value != "" && !strings.ContainsAny(name, " /:?{") {
				out[i] = r.text(name, false) + "=" + Redacted // HF_TOKEN=… before or among the arguments
				continue
			}
			out[i] = r.text(a, false)
		case secretName(name):
			if joined {
				out[i] = name + "=" + Redacted
				continue
			}
			out[i] = a
			// vLLM's --api-key takes several values.
			several := strings.HasSuffix(strings.ReplaceAll(name, "_", "-"), "api-key")
			for i+1 < len(args) && isValue(args[i+1]) {
				i++
				out[i] = Redacted
				if !several {
					break
				}
			}
		case headerFlag(name):
			if joined {
				out[i] = name + "=" + r.header(value)
				continue
			}
			out[i] = a
			for i+1 < len(args) && isValue(args[i+1]) {
				i++
				out[i] = r.header(args[i])
			}
		case name == "-u" || name == "--user" || name == "--proxy-user":
			out[i] = a
			if joined {
				out[i] = name + "=" + r.login(value)
			} else if i+1 < len(args) && isValue(args[i+1]) {
				i++
				out[i] = r.login(args[i])
			}
		case joined:
			out[i] = name + "=" + r.text(value, false)
		default:
			out[i] = r.text(a, false)
		}
	}
	return out
}

// Env redacts the values of an environment.
func (r *Redactor) Env(env map[string]string) map[string]string {
	if env == nil {
		return nil
	}
	out := make(map[string]string, len(env))
	for name, value := range env {
		if secretName(name) && value != "" {
			out[name] = Redacted
		} else {
			out[name] = r.text(value, false)
		}
	}
	return out
}

// isValue reports whether an argument is the value of the flag before it.
func isValue(a string) bool { return !strings.HasPrefix(a, "-") || a == "-" }

func headerFlag(name string) bool {
	switch strings.TrimLeft(strings.ReplaceAll(name, "_", "-"), "-") {
	case "H", "header", "headers", "extra-header", "extra-headers", "add-header", "default-headers":
		return true
	}
	return false
}

// header redacts "Name: value", keeping the name and an authorization
// scheme; other forms are texts.
func (r *Redactor) header(s string) string {
	name, value, ok := strings.Cut(s, ":")
	if !ok {
		name, value, ok = strings.Cut(s, "=")
	}
	if !ok || strings.ContainsAny(name, "{\"' ") {
		return r.text(s, false)
	}
	if !secretHeader(name) {
		return r.text(s, false)
	}
	space := value[:len(value)-len(strings.TrimLeft(value, " "))]
	return s[:len(name)+1] + space + redactedCredentials(value[len(space):])
}

// redactedCredentials keeps the scheme of "Bearer …".
func redactedCredentials(value string) string {
	if value == "" {
		return ""
	}
	if scheme, _, ok := strings.Cut(value, " "); ok && isScheme(scheme) {
		return scheme + " " + Redacted
	}
	return Redacted
}

func isScheme(s string) bool {
	switch strings.ToLower(s) {
	case "bearer", "basic", "digest", "token", "negotiate", "apikey":
		return true
	}
	return false
}

// login redacts user:password, but not the numbers of docker's --user.
func (r *Redactor) login(s string) string {
	if strings.Contains(s, ":") && strings.ContainsFunc(s, unicode.IsLetter) {
		return Redacted
	}
	return r.text(s, false)
}

// known replaces the known secrets.
func (r *Redactor) known(s string) string {
	for _, e := range r.exact {
		s = strings.ReplaceAll(s, e, Redacted)
	}
	for _, core := range r.encoded {
		s = replaceRuns(s, core, func(start, end int) (int, int, bool) {
			for start > 0 && isBase64(s[start-1]) {
				start--
			}
			for end < len(s) && (isBase64(s[end]) || s[end] == '=') {
				end++
			}
			return start, end, true
		}, Redacted)
	}
	if r.words != nil {
		s = replaceWords(r.words, s, Redacted)
	}
	return r.cut(s)
}

// cut replaces the beginning of a known secret at the very end of a text:
// error texts are shortened before they come here.
func (r *Redactor) cut(s string) string {
	body := strings.TrimRight(s, "…\"'`")
	for _, e := range r.exact {
		for n := min(len(e)-1, len(body)); n >= minAnywhere; n-- {
			if strings.HasSuffix(body, e[:n]) {
				return body[:len(body)-n] + Redacted + s[len(body):]
			}
		}
	}
	return s
}

// replaceRuns replaces what extent makes of each occurrence of part in s,
// unless it declines.
func replaceRuns(s, part string, extent func(start, end int) (int, int, bool), by string) string {
	var b strings.Builder
	last := 0
	for from := 0; ; {
		i := strings.Index(s[from:], part)
		if i < 0 {
			b.WriteString(s[last:])
			return b.String()
		}
		start, end, ok := extent(from+i, from+i+len(part))
		if ok {
			b.WriteString(s[last:max(start, last)] + by)
			last = end
		}
		from = end
	}
}

func isBase64(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' || c == '+' || c == '/' || c == '-' || c == '_'
}

// replaceWords replaces what the expression finds between its two groups.
// It is applied twice because neighbours share the character between them.
func replaceWords(e *regexp.Regexp, s, by string) string {
	by = "${1}" + by + "${2}"
	return e.ReplaceAllString(e.ReplaceAllString(s, by), by)
}

// secretName reports whether a flag, variable, JSON key, header or query
// parameter of this name holds a secret. "max_tokens", "tokenizer",
// "eos_token" and "api-key-file" do not.
func secretName(name string) bool {
	w := nameWords(name)
	if len(w) == 0 {
		return false
	}
	last, before := w[len(w)-1], ""
	if len(w) > 1 {
		before = w[len(w)-2]
	}
	for _, first := range []string{"no", "enable", "disable", "use", "require", "allow", "max", "min", "num"} {
		if w[0] == first {
			return false
		}
	}
	switch last {
	case "password", "passwd", "pwd", "passphrase", "secret", "secrets", "credential", "credentials",
		"apikey", "apikeys", "authtoken", "accesstoken", "cookie", "authorization", "auth":
		return true
	case "key", "keys":
		switch before {
		case "api", "access", "secret", "private", "auth", "signing", "encryption", "master", "account", "subscription",
			"service", "client", "admin", "license", "deploy", "ssh", "shared", "openai", "anthropic", "x":
			return true
		case "":
			return last == "key" && strings.TrimLeft(name, "-") != "keys"
		}
		return name == strings.ToUpper(name) && last == "key" // an environment variable: SOME_SERVICE_KEY
	case "token":
		switch before {
		case "eos", "bos", "pad", "sep", "mask", "unk", "cls", "stop", "per", "image", "video", "audio", "first", "last",
			"next", "special", "added", "think", "start", "end", "begin", "reasoning", "prompt", "output", "input", "invalid",
			"unexpected", "unknown", "draft", "sampled", "each", "every", "new", "of":
			return false
		}
		return true
	case "id":
		return before == "key" && slices.Contains(w, "access")
	}
	return false
}

// secretHeader is wider: what a header with such a word holds is nobody
// else's business.
func secretHeader(name string) bool {
	for _, w := range nameWords(name) {
		switch w {
		case "auth", "authorization", "key", "apikey", "token", "secret", "cookie", "session", "credential", "credentials", "signature", "password", "access":
			return true
		}
	}
	return secretName(name)
}

// nameWords splits a name at everything that is not a letter or a digit and
// where a capital follows a small letter, in lower case.
func nameWords(name string) []string {
	var b strings.Builder
	before := ' '
	for _, c := range name {
		switch {
		case !unicode.IsLetter(c) && !unicode.IsDigit(c):
			c = ' '
		case unicode.IsUpper(c) && unicode.IsLower(before):
			b.WriteByte(' ')
		}
		b.WriteRune(c)
		before = c
	}
	return strings.Fields(strings.ToLower(b.String()))
}

var (
	pairName = regexp.MustCompile(`[A-Za-z_][A-Za-z0-9_.-]*`)
	// between a name and its value; the first group is a closing quote
	pairJoint = regexp.MustCompile(`^(\\*["'\x60])?\s*[:=]\s*`)
	bearer    = regexp.MustCompile(`(?i)\b(?:bearer|basic)\s+[A-Za-z0-9._~+/=-]+`)
	// the looks of well-known kinds of secrets
	shapes = regexp.MustCompile(`\b(?:` + strings.Join([]string{
		`sk-[A-Za-z0-9_-]{6,}`, `hf_[A-Za-z0-9]{16,}`, `api_org_[A-Za-z0-9]{16,}`, `gh[pousr]_[A-Za-z0-9]{16,}`, `github_pat_[A-Za-z0-9_]{16,}`,
		`glpat-[A-Za-z0-9_-]{12,}`, `(?:AKIA|ASIA)[0-9A-Z]{16}`, `AIza[0-9A-Za-z_-]{30,}`, `xox[abprs]-[A-Za-z0-9-]{10,}`,
		`nvapi-[A-Za-z0-9_-]{16,}`, `gsk_[A-Za-z0-9]{16,}`, `npm_[A-Za-z0-9]{30,}`, `pypi-[A-Za-z0-9_-]{30,}`, `wandb_v1_[A-Za-z0-9_]{16,}`,
		`eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{4,}(?:\.[A-Za-z0-9_-]*)?`,
	}, "|") + `)`)
	userinfo = regexp.MustCompile(`\b[A-Za-z][A-Za-z0-9+.-]*://[^\s"'<>\x60]*`)
	homes    = regexp.MustCompile(`(?:/var|/export|/usr)?/(?:home|Users)/[^/\\\s"'\x60:;,|<>()\[\]{}&=$]+|/root\b|[A-Za-z]:[\\/]+Users[\\/]+[^\\/\s"'\x60:;,|<>]+|/mnt/[a-z]/Users/[^/\s"'\x60:;,|<>]+`)
)

func redactBearer(s string) string {
	scheme, value, _ := strings.Cut(s, " ")
	if value = strings.TrimSpace(value); len(value) >= 16 || strings.ContainsAny(value, "0123456789_.-") {
		return scheme + " " + Redacted
	}
	return s // "the bearer of this letter"
}

// redactURLs takes user and password out of addresses.
func redactURLs(s string) string {
	return userinfo.ReplaceAllStringFunc(s, func(u string) string {
		i := strings.Index(u, "://") + 3
		scheme, rest := u[:i], u[i:]
		authority := rest
		if j := strings.IndexAny(rest, "/?#"); j >= 0 {
			authority = rest[:j]
		}
		if at := strings.LastIndexByte(authority, '@'); at >= 0 {
			return scheme + Redacted + rest[at:]
		}
		// A password with a raw slash: what looks like a port is none.
		if _, port, ok := strings.Cut(authority, ":"); ok && !strings.HasPrefix(authority, "[") && strings.ContainsFunc(port, func(c rune) bool { return c < '0' || c > '9' }) {
			if at := strings.LastIndexByte(rest, '@'); at >= 0 {
				return scheme + Redacted + rest[at:]
			}
		}
		return u
	})
}

// redactPairs takes out the values of secret names: name=value, name: value,
// "name": value in JSON, and --name value on a command line. In a command,
// --api-key takes every word up to the next flag.
func redactPairs(s string, command bool) string {
	var b strings.Builder
	for {
		m := pairName.FindStringIndex(s)
		if m == nil {
			b.WriteString(s)
			return b.String()
		}
		name, rest := s[m[0]:m[1]], s[m[1]:]
		flag := m[0] > 0 && s[m[0]-1] == '-'
		b.WriteString(s[:m[1]])
		s = rest
		if !secretName(name) {
			continue
		}
		joint := pairJoint.FindString(rest)
		if joint == "" && flag {
			joint = rest[:len(rest)-len(strings.TrimLeft(rest, " \t"))]
			if after := rest[len(joint):]; strings.HasPrefix(after, "-") {
				continue
			}
		}
		if joint == "" {
			continue
		}
		b.WriteString(joint)
		rest = rest[len(joint):]
		keep, value := secretValue(name, rest)
		b.WriteString(keep)
		switch value {
		case "", "null", "None", "true", "false", "True", "False", Redacted:
			b.WriteString(value)
		default:
			b.WriteString(Redacted)
		}
		s = rest[len(keep)+len(value):]
		for command && flag && strings.HasSuffix(name, "key") {
			next := pairNext.FindString(s)
			if next == "" {
				break
			}
			b.WriteString(next[:1] + Redacted)
			s = s[len(next):]
		}
	}
}

// pairNext is one more value behind the first of a flag.
var pairNext = regexp.MustCompile(`^ [^\s"'-][^\s"']*`)

// secretValue splits what follows a secret name into what may stay (an
// opening quote, an authorization scheme) and the secret.
func secretValue(name, s string) (keep, value string) {
	if m := openQuote.FindString(s); m != "" {
		keep, s = m, s[len(m):]
		end := closing(s, m)
		value = s[:end]
	} else if s != "" && (s[0] == '[' || s[0] == '{') {
		return "", s[:bracketEnd(s)]
	} else if last := nameWords(name); last[len(last)-1] == "authorization" || last[len(last)-1] == "cookie" {
		value = s
		if i := strings.IndexAny(s, "\r\n\"'"); i >= 0 {
			value = s[:i]
		}
	} else {
		value = s
		if i := strings.IndexAny(s, " \t\r\n\"'`&"); i >= 0 {
			value = s[:i]
		}
		value = strings.TrimRight(value, `,;)]}\`)
		if scheme := value; isScheme(scheme) && strings.HasPrefix(s[len(scheme):], " ") {
			_, next := secretValue("x", s[len(scheme)+1:])
			return scheme + " ", next
		}
		return keep, value
	}
	if scheme, _, ok := strings.Cut(value, " "); ok && isScheme(scheme) {
		keep += scheme + " "
		value = value[len(scheme)+1:]
	}
	return keep, value
}

// openQuote is a quote, escaped or not, at the start of a value.
var openQuote = regexp.MustCompile("^\\\\*[\"'`]")

// closing returns where the quoted value ends: at the same quote with the
// same escapes, or at the end of the text.
func closing(s, quote string) int {
	depth := len(quote) - 1
	mark := quote[depth]
	for i := 0; i < len(s); i++ {
		if s[i] != mark {
			continue
		}
		escapes := 0
		for i-escapes > 0 && s[i-escapes-1] == '\\' {
			escapes++
		}
		if escapes <= depth {
			return i - min(escapes, depth)
		}
	}
	return len(s)
}

// bracketEnd returns the length of the list or object at the start of s.
func bracketEnd(s string) int {
	depth, quote := 0, byte(0)
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case quote != 0:
			if c == '\\' {
				i++
			} else if c == quote {
				quote = 0
			}
		case c == '"' || c == '\'':
			quote = c
		case c == '[' || c == '{':
			depth++
		case c == ']' || c == '}':
			if depth--; depth == 0 {
				return i + 1
			}
		}
	}
	return len(s)
}

// paths replaces home directories, and the user's name in other paths.
func (r *Redactor) paths(s string) string {
	if r.home != "" {
		s = replaceRuns(s, r.home, func(start, end int) (int, int, bool) {
			next, _ := utf8.DecodeRuneInString(s[end:])
			longer := end < len(s) && (unicode.IsLetter(next) || unicode.IsDigit(next) || strings.ContainsRune("_.-", next))
			return start, end, !longer // /home/ann is not the start of /home/anna
		}, "$HOME")
	}
	var b strings.Builder
	last := 0
	for _, m := range homes.FindAllStringIndex(s, -1) {
		if !pathStart(s, m[0]) || strings.HasSuffix(s[:m[1]], "/root") && m[1] < len(s) && strings.ContainsRune("-_.", rune(s[m[1]])) {
			continue
		}
		b.WriteString(s[last:m[0]])
		b.WriteString("$HOME")
		last = m[1]
	}
	b.WriteString(s[last:])
	s = b.String()
	if r.user != nil {
		s = r.user.ReplaceAllString(s, "${1}<user>${2}")
		s = r.user.ReplaceAllString(s, "${1}<user>${2}")
	}
	return s
}

// pathStart reports whether a path can begin at s[i]: not inside another
// path or the path of an address.
func pathStart(s string, i int) bool {
	if i == 0 {
		return true
	}
	c, _ := utf8.DecodeLastRuneInString(s[:i])
	if c == '/' {
		return strings.HasSuffix(s[:i], "//") // file:///home/…
	}
	return !unicode.IsLetter(c) && !unicode.IsDigit(c) && !strings.ContainsRune("_.-~$>}", c)
}
