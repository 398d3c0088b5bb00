package api

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"slices"

	"go.opentelemetry.io/collector/component"

	"github.com/retryledger/retryledger/analysis/answer"
	"github.com/retryledger/retryledger/analysis/query"
)

// Router is the API as other extensions see it: they answer at its address, behind
// its authentication and its guard against web pages, so that a user has one port
// to open and to protect.
type Router interface {
	// Handle serves what matches a pattern of [http.ServeMux]. Call it in Start, in an
	// extension that names the API among its dependencies, so that the API starts before
	// it and ends after it. A pattern that is served already is an error.
	Handle(pattern string, handler http.Handler) error
	// Turn waits until a question may ask the store: at most max_concurrent_queries do at
	// once, and one waits for query_timeout at most. done ends the question. The error is the
	// answer to who asked.
	Turn(ctx context.Context) (done func(), err error)
	// Limits are those of one question to the store.
	Limits() query.Limits
	// URL is where the API is reached from this machine, such as http://127.0.0.1:4320.
	URL() string
}

// RouterFrom finds the API that a component's configuration names. Call it in Start.
func RouterFrom(host component.Host, id component.ID) (Router, error) {
	found, ok := host.GetExtensions()[id]
	if !ok {
		return nil, fmt.Errorf("there is no extension %s; add it to extensions and to service::extensions, or name another under api", id)
	}
	router, ok := found.(Router)
	if !ok {
		return nil, fmt.Errorf("the extension %s is no API; name a %s under api", id, componentType)
	}
	return router, nil
}

// Handle implements Router.
func (s *server) Handle(pattern string, handler http.Handler) (err error) {
	defer func() {
		if conflict := recover(); conflict != nil { // how a ServeMux refuses
			err = fmt.Errorf("serve %s: %v", pattern, conflict)
		}
	}()
	s.mux.Handle(pattern, handler)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.patterns = append(s.patterns, pattern)
	slices.Sort(s.patterns)
	return nil
}

// listed is what is served, sorted.
func (s *server) listed() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.patterns)
}

// Turn implements Router.
func (s *server) Turn(ctx context.Context) (done func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, s.config.QueryTimeout)
	defer cancel()
	select {
	case s.slots <- struct{}{}:
		return func() { <-s.slots }, nil
	case <-ctx.Done():
		return nil, answer.Refuse(http.StatusServiceUnavailable, "too many questions are being worked on; ask again later")
	}
}

// Limits implements Router.
func (s *server) Limits() query.Limits { return s.config.limits() }

// URL implements Router.
func (s *server) URL() string {
	scheme, address := "http", s.config.ServerConfig.NetAddr.Endpoint
	if s.config.ServerConfig.TLS.HasValue() {
		scheme = "https"
	}
	if s.addr != nil {
		address = s.addr.String()
	}
	if host, port, err := net.SplitHostPort(address); err == nil {
		if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
			address = net.JoinHostPort("127.0.0.1", port)
		}
	}
	return scheme + "://" + address
}
