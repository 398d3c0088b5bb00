package api

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componentstatus"
	"go.opentelemetry.io/collector/extension"
	"go.opentelemetry.io/collector/extension/extensioncapabilities"
	"go.uber.org/zap"

	"github.com/retryledger/retryledger/analysis/answer"
)

// connector is what the API needs of the store's extension.
type connector interface {
	// Conn waits until the store is up and its schema is there, or ctx ends.
	Conn(ctx context.Context) (driver.Conn, error)
}

// server is the extension.
type server struct {
	config   *Config
	settings extension.Settings
	store    connector
	now      func() time.Time
	slots    chan struct{} // one for each question that is worked on
	mux      *http.ServeMux

	mu       sync.Mutex
	patterns []string // what is served, for those who ask for something else

	http    *http.Server
	addr    net.Addr
	serving sync.WaitGroup
}

var (
	_ extensioncapabilities.Dependent = (*server)(nil)
	_ Router                          = (*server)(nil)
)

func newServer(config *Config, settings extension.Settings) *server {
	s := &server{
		config: config, settings: settings, now: time.Now,
		slots: make(chan struct{}, config.MaxConcurrentQueries), mux: http.NewServeMux(),
	}
	s.questions()
	return s
}

// Dependencies makes the store start before the API and stop after it.
func (s *server) Dependencies() []component.ID { return []component.ID{s.config.Store} }

// Start listens at once and answers as soon as the store does.
func (s *server) Start(ctx context.Context, host component.Host) error {
	found, ok := host.GetExtensions()[s.config.Store]
	if !ok {
		return fmt.Errorf("start the API: there is no extension %s; add it to extensions and to service::extensions, or name another under store",
			s.config.Store)
	}
	if s.store, ok = found.(connector); !ok {
		return fmt.Errorf("start the API: the extension %s is no store; name a retryledger_store under store", s.config.Store)
	}
	listener, err := s.config.ServerConfig.ToListener(ctx)
	if err != nil {
		return s.listenError(err)
	}
	s.http, err = s.config.ServerConfig.ToServer(ctx, host.GetExtensions(), s.settings.TelemetrySettings, s.guarded(s.mux))
	if err != nil {
		_ = listener.Close()
		return fmt.Errorf("start the API: %w", err)
	}
	s.addr = listener.Addr()
	s.serving.Add(1)
	go func() {
		defer s.serving.Done()
		if err := s.http.Serve(listener); err != nil && !errors.Is(err, http.ErrServerClosed) {
			componentstatus.ReportStatus(host, componentstatus.NewRecoverableErrorEvent(fmt.Errorf("serve the API: %w", err)))
		}
	}()
	return nil
}

func (s *server) listenError(err error) error {
	endpoint := s.config.ServerConfig.NetAddr.Endpoint
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("start the API: %s is taken, perhaps by another collector; stop that one, or set endpoint of %s to another port: %w",
			endpoint, s.settings.ID, err)
	}
	return fmt.Errorf("start the API: listen on %s: %w", endpoint, err)
}

// Shutdown lets open answers finish until ctx ends.
func (s *server) Shutdown(ctx context.Context) error {
	if s.http == nil {
		return nil
	}
	err := s.http.Shutdown(ctx)
	if err != nil {
		err = errors.Join(fmt.Errorf("stop the API: %w", err), s.http.Close())
	}
	s.serving.Wait()
	return err
}

// guarded refuses what a web page may have sent: requests under a name that is not
// this machine's, and requests from another site: what a browser says of where it sends
// from is read in Sec-Fetch-Site, and where a request would change something in Origin
// too, which all browsers send with it.
func (s *server) guarded(next http.Handler) http.Handler {
	loopback := onLoopback(s.config.ServerConfig.NetAddr.Endpoint)
	allowed := s.config.AllowedHosts
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Cache-Control", "no-store")
		host := hostName(r.Host)
		if (loopback || len(allowed) > 0) && !isLoopback(host) && !slices.ContainsFunc(allowed, func(a string) bool { return strings.EqualFold(a, host) }) {
			s.fail(w, r, answer.Refuse(http.StatusForbidden, fmt.Sprintf(
				"this API is not served under the name %q; ask it as %s, or add the name to allowed_hosts", host, s.URL())))
			return
		}
		if !s.config.ServerConfig.CORS.HasValue() && r.Header.Get("Sec-Fetch-Site") == "cross-site" && !followsLink(r) {
			s.fail(w, r, answer.Refuse(http.StatusForbidden, "pages of other sites may not read this API; set cors to allow some"))
			return
		}
		if origin := r.Header.Get("Origin"); origin != "" && changes(r) && !s.allowsOrigin(origin, r.Host) {
			s.fail(w, r, answer.Refuse(http.StatusForbidden, fmt.Sprintf(
				"pages of %q may not change anything here; add its name to allowed_hosts, or set cors to allow it", origin)))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// changes tells whether a request may change something.
func changes(r *http.Request) bool {
	return r.Method != http.MethodGet && r.Method != http.MethodHead && r.Method != http.MethodOptions
}

// allowsOrigin tells whether a page of origin (scheme://host:port, or "null") may change
// something: one of the address that the request was sent to, and those that are configured.
func (s *server) allowsOrigin(origin, host string) bool {
	if s.config.ServerConfig.CORS.HasValue() {
		for _, allowed := range s.config.ServerConfig.CORS.Get().AllowedOrigins {
			before, after, wild := strings.Cut(strings.ToLower(allowed), "*")
			rest, begins := strings.CutPrefix(strings.ToLower(origin), before)
			if begins && (rest == "" && !wild || wild && strings.HasSuffix(rest, after)) {
				return true
			}
		}
	}
	from, err := url.Parse(origin)
	if err != nil || from.Host == "" {
		return false
	}
	return strings.EqualFold(from.Host, host) ||
		slices.ContainsFunc(s.config.AllowedHosts, func(a string) bool { return strings.EqualFold(a, from.Hostname()) })
}

// followsLink tells whether a person follows a link of another site, such as a chat's:
// that site sees nothing of the answer.
func followsLink(r *http.Request) bool {
	return r.Method == http.MethodGet && r.Header.Get("Sec-Fetch-Mode") == "navigate" && r.Header.Get("Sec-Fetch-Dest") == "document"
}

func hostName(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		return name
	}
	return strings.Trim(host, "[]")
}

func isLoopback(name string) bool {
	ip := net.ParseIP(name)
	return strings.EqualFold(name, "localhost") || ip != nil && ip.IsLoopback()
}

func onLoopback(endpoint string) bool { return isLoopback(hostName(endpoint)) }

func (s *server) logger() *zap.Logger { return s.settings.Logger }
