package cli

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/retryledger/retryledger/internal/replay"
)

// How a collector is reached that asks who it is: flags, and the environment variables
// that stand in for them. A secret is never a flag, which the list of processes shows.
const (
	serverVariable    = "RETRYLEDGER_SERVER"
	tokenVariable     = "RETRYLEDGER_TOKEN"      //nolint:gosec // a name, no credential
	tokenFileVariable = "RETRYLEDGER_TOKEN_FILE" //nolint:gosec // a name, no credential
	caVariable        = "RETRYLEDGER_CA_FILE"
	certVariable      = "RETRYLEDGER_CERT_FILE"
	keyVariable       = "RETRYLEDGER_KEY_FILE"
)

// serverFlags say where the collector's API is, and how it is reached.
type serverFlags struct {
	url, tokenFile, caFile, certFile, keyFile string
}

func addServerFlags(f *pflag.FlagSet, s *serverFlags) {
	f.StringVar(&s.url, "server", "", "the collector's API (default $"+serverVariable+", else "+DefaultServer+")")
	f.StringVar(&s.tokenFile, "token-file", "", "file of the bearer token that the collector asks for (default $"+tokenFileVariable+"; $"+tokenVariable+" is the token itself)")
	f.StringVar(&s.caFile, "ca-file", "", "certificate of the authority that signed the collector's (default $"+caVariable+", else those of this machine)")
	f.StringVar(&s.certFile, "cert-file", "", "certificate to show to the collector (default $"+certVariable+")")
	f.StringVar(&s.keyFile, "key-file", "", "key of --cert-file (default $"+keyVariable+")")
}

// or is a flag, else its environment variable, and which of the two.
func or(env Environment, flag, name, variable string) (value, source string) {
	if flag != "" {
		return flag, "--" + name
	}
	return env.Getenv(variable), variable
}

// access reads the token and the certificates. user may be nil.
func (s serverFlags) access(env Environment, user *url.Userinfo) (replay.Access, error) {
	var access replay.Access
	token := env.Getenv(tokenVariable)
	if file, source := or(env, s.tokenFile, "token-file", tokenFileVariable); file != "" && (token == "" || s.tokenFile != "") {
		content, err := os.ReadFile(file)
		if err != nil {
			return access, fail(ExitUsage, "%s: read the token: %w", source, err)
		}
		if token = strings.TrimSpace(string(content)); token == "" {
			return access, fail(ExitUsage, "%s: %s is empty", source, file)
		}
	}
	switch {
	case strings.ContainsAny(token, "\r\n"):
		return access, fail(ExitUsage, "%s: a token is one line", tokenVariable)
	case token != "":
		access.Authorization = "Bearer " + token
	case user != nil:
		password, _ := user.Password()
		access.Authorization = "Basic " + base64.StdEncoding.EncodeToString([]byte(user.Username()+":"+password))
	}

	ca, caSource := or(env, s.caFile, "ca-file", caVariable)
	cert, certSource := or(env, s.certFile, "cert-file", certVariable)
	key, keySource := or(env, s.keyFile, "key-file", keyVariable)
	if ca == "" && cert == "" && key == "" {
		return access, nil
	}
	access.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	if ca != "" {
		content, err := os.ReadFile(ca)
		if err != nil {
			return access, fail(ExitUsage, "%s: read the certificate: %w", caSource, err)
		}
		access.TLS.RootCAs = x509.NewCertPool()
		if !access.TLS.RootCAs.AppendCertsFromPEM(content) {
			return access, fail(ExitUsage, "%s: %s holds no certificate in PEM", caSource, ca)
		}
	}
	switch {
	case cert != "" && key != "":
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return access, fail(ExitUsage, "%s and %s: %w", certSource, keySource, err)
		}
		access.TLS.Certificates = []tls.Certificate{pair}
	case cert != "":
		return access, fail(ExitUsage, "%s is given without its key; give --key-file too", certSource)
	case key != "":
		return access, fail(ExitUsage, "%s is given without its certificate; give --cert-file too", keySource)
	}
	return access, nil
}

func newClient(env Environment, server serverFlags) (*client, error) {
	address, source := or(env, server.url, "server", serverVariable)
	if address == "" {
		address = DefaultServer
	}
	if !strings.Contains(address, "://") {
		address = "http://" + address
	}
	base, err := url.Parse(address)
	if err != nil || base.Host == "" || base.Scheme != "http" && base.Scheme != "https" {
		return nil, fail(ExitUsage, "%s: write the collector's API as %s", source, DefaultServer) // the value may hold a password
	}
	access, err := server.access(env, base.User)
	if err != nil {
		return nil, err
	}
	base.User = nil
	c := &client{base: base, access: access, http: &http.Client{Timeout: 2 * time.Minute}}
	if base.Scheme == "https" {
		noted := access
		noted.TLS = c.notingCertificateRequests(access.TLS)
		transport := noted.Transport()
		transport.DisableKeepAlives = true // a command asks once or twice, and leaves nothing open
		c.http.Transport = transport
	}
	return c, nil
}

// notingCertificateRequests are the settings of TLS, and remember whether the server asked
// for a certificate. With TLS 1.3 a client learns that its certificate was turned away only
// after the handshake, and whether it reads that before the connection is gone is chance;
// that it was asked it knows for sure.
func (c *client) notingCertificateRequests(settings *tls.Config) *tls.Config {
	if settings == nil {
		settings = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	settings = settings.Clone()
	certificates := settings.Certificates
	settings.GetClientCertificate = func(request *tls.CertificateRequestInfo) (*tls.Certificate, error) {
		c.askedForCertificate.Store(true)
		for i := range certificates {
			if request.SupportsCertificate(&certificates[i]) == nil {
				return &certificates[i], nil
			}
		}
		return new(tls.Certificate), nil
	}
	return settings
}

// unreachable says what to do when no collector answers.
func (c *client) unreachable(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return interrupted(c.base.Host, ctx.Err())
	}
	var cause *url.Error
	slow := false
	if errors.As(err, &cause) {
		slow = cause.Timeout()
		err = cause.Err
	}
	remedy := tlsRemedy(err)
	if remedy == "" && !slow && c.askedForCertificate.Load() {
		remedy = showCertificate
	}
	if remedy != "" {
		return fail(ExitUnreachable, "no answer from %s: %w\n%s", c.base.Host, err, remedy)
	}
	return fail(ExitUnreachable, "no answer from %s: %w\nIs the collector running? Start it with: go run ./cmd/collector\n"+
		"If its API listens elsewhere, say where with --server or %s.", c.base.Host, err, serverVariable)
}

const showCertificate = "It asks for a certificate that it trusts. Give one with --cert-file and --key-file, or " + certVariable + " and " + keyVariable + "."

// turnedAway are the alerts by which a server turns away a client for its certificate, as
// crypto/tls words them; their type has no exported values.
var turnedAway = regexp.MustCompile(`remote error: tls: (certificate required|bad certificate|unknown certificate authority)`)

// tlsRemedy says what to do about an error of TLS, "" if err is none.
func tlsRemedy(err error) string {
	var authority x509.UnknownAuthorityError
	var hostname x509.HostnameError
	var record tls.RecordHeaderError
	switch {
	case errors.As(err, &authority):
		return "Nobody that this machine trusts signed its certificate. Name the certificate of who did with --ca-file or " + caVariable + "."
	case errors.As(err, &hostname):
		return "Its certificate is for another name. Ask it by that one."
	case errors.As(err, &record), strings.Contains(err.Error(), "server gave HTTP response to HTTPS client"):
		return "It does not speak TLS. Write http:// where it is named."
	case turnedAway.MatchString(err.Error()):
		return showCertificate
	}
	return ""
}
