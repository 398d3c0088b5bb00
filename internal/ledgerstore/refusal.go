package ledgerstore

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/ClickHouse/clickhouse-go/v2/lib/proto"

	"github.com/retryledger/retryledger/internal/engine"
	"github.com/retryledger/retryledger/schema"
)

// Codes by which ClickHouse refuses a client (src/Common/ErrorCodes.cpp).
const (
	codeUnknownUser       = 192
	codeWrongPassword     = 193
	codeRequiredPassword  = 194
	codeAuthentication    = 516
	codeAccessDenied      = 497
	codeReadonly          = 164
	codeIPAddressDenied   = 195
	codeUnknownSetting    = 115
	codeSupportIsDisabled = 344
)

// refused tells whether waiting cannot help: somebody has to change something.
func refused(err error) bool {
	var newer *schema.NewerSchemaError
	var exception *proto.Exception
	var hostname x509.HostnameError
	var authority x509.UnknownAuthorityError
	var record tls.RecordHeaderError
	switch {
	case errors.As(err, &newer), errors.As(err, &hostname), errors.As(err, &authority), errors.As(err, &record):
		return true
	case errors.As(err, &exception):
		switch exception.Code {
		case codeUnknownUser, codeWrongPassword, codeRequiredPassword, codeAuthentication,
			codeAccessDenied, codeReadonly, codeIPAddressDenied, codeUnknownSetting, codeSupportIsDisabled:
			return true
		}
	}
	return false
}

// explained adds to err what the user can do.
func (s *ledgerStore) explained(err error) error {
	endpoint := s.config.Endpoint
	if endpoint == "" {
		return err
	}
	var exception *proto.Exception
	if errors.As(err, &exception) {
		switch exception.Code {
		case codeUnknownUser, codeWrongPassword, codeRequiredPassword, codeAuthentication, codeIPAddressDenied:
			return fmt.Errorf("the server at %s does not let user %q in: check username and password of the extension %s: %w",
				endpoint, s.config.Username, s.id, err)
		case codeAccessDenied, codeReadonly:
			return fmt.Errorf("user %q at %s lacks a right: it needs CREATE, ALTER, INSERT and SELECT on database %s: %w",
				s.config.Username, endpoint, s.config.Database, err)
		}
		return fmt.Errorf("the server at %s: %w", endpoint, err)
	}
	var hostname x509.HostnameError
	var authority x509.UnknownAuthorityError
	var record tls.RecordHeaderError
	switch {
	case errors.As(err, &record):
		return fmt.Errorf("%s answers without TLS: remove tls of the extension %s, or name the port that speaks TLS (usually 9440): %w", endpoint, s.id, err)
	case errors.As(err, &authority):
		return fmt.Errorf("the certificate of %s is signed by nobody this machine trusts: set tls::ca_file of the extension %s: %w", endpoint, s.id, err)
	case errors.As(err, &hostname):
		return fmt.Errorf("the certificate of %s is for another name: set tls::server_name_override of the extension %s: %w", endpoint, s.id, err)
	case errors.Is(err, io.EOF) && !s.config.TLS.HasValue():
		return fmt.Errorf("%s closed the connection: it may want TLS (set tls of the extension %s) or speak another protocol (name the native port, usually 9000): %w", endpoint, s.id, err)
	}
	return fmt.Errorf("reach %s: %w", endpoint, err)
}

// showProgress writes one line for each step of a fetch, and for each tenth of a
// step that says how much there is.
func showProgress(out io.Writer) func(engine.Progress) {
	var mu sync.Mutex
	last := ""
	return func(p engine.Progress) {
		mark := p.Step
		if p.Total > 0 {
			mark = fmt.Sprint(p.Step, " ", 10*p.Bytes/p.Total)
		}
		mu.Lock()
		defer mu.Unlock()
		if mark == last {
			return
		}
		last = mark
		_, _ = fmt.Fprintln(out, strings.TrimSpace(p.String()))
	}
}
