package collect

import (
	"errors"
	"net"
	"os"

	"speedmatrix/collect/host"
)

// newRedactor knows what the run log must not hold: credentials, the person's
// home, and the names and addresses of this machine and of the server.
func newRedactor(cfg *Config) *host.Redactor {
	secrets := []string{cfg.Key}
	for name, values := range cfg.Header {
		if secretHeader(name) {
			secrets = append(secrets, values...)
		}
	}
	if u := cfg.URL.User; u != nil {
		password, _ := u.Password()
		secrets = append(secrets, password, u.Username()+":"+password)
	}
	home, _ := os.UserHomeDir()
	hostname, _ := os.Hostname()
	addresses := []string{os.Getenv("HOSTNAME"), cfg.URL.Hostname()}
	own, err := net.InterfaceAddrs()
	if err != nil {
		own = nil
	}
	for _, a := range own {
		if n, ok := a.(*net.IPNet); ok {
			addresses = append(addresses, n.IP.String())
		}
	}
	return host.NewRedactor(secrets, home, hostname, addresses...)
}

// A redactedError is an error whose words may be the server's, which may
// repeat the credentials that it was sent.
type redactedError struct {
	err    error
	redact *host.Redactor
}

func (e *redactedError) Error() string { return e.redact.Secrets(e.err.Error()) }
func (e *redactedError) Unwrap() error { return e.err }

// Hint is the hint of the error within; "" when it has none.
func (e *redactedError) Hint() string {
	var hinted interface{ Hint() string }
	if !errors.As(e.err, &hinted) {
		return ""
	}
	return e.redact.Secrets(hinted.Hint())
}
