package delivery

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/prometheus/alertmanager/alert"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/prometheus/common/model"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/config/confighttp"
	"go.uber.org/zap"
)

const (
	maxBatch    = 256
	sendTimeout = 10 * time.Second
	minBackoff  = 250 * time.Millisecond
	maxBackoff  = 30 * time.Second
)

// wireAlert is an alert as POST /api/v2/alerts takes it.
type wireAlert struct {
	Labels       model.LabelSet `json:"labels"`
	Annotations  model.LabelSet `json:"annotations"`
	StartsAt     time.Time      `json:"startsAt"`
	EndsAt       time.Time      `json:"endsAt"`
	GeneratorURL string         `json:"generatorURL,omitempty"`
}

func wire(a *alert.Alert) wireAlert {
	return wireAlert{a.Labels, a.Annotations, a.StartsAt, a.EndsAt, a.GeneratorURL}
}

func (w *wireAlert) resolved(now time.Time) bool { return !w.EndsAt.After(now) }

type pushMetrics struct{ sent, refused, failures *prometheus.CounterVec }

func newPushMetrics(reg prometheus.Registerer) *pushMetrics {
	counter := func(name, help string) *prometheus.CounterVec {
		return promauto.With(reg).NewCounterVec(prometheus.CounterOpts{Name: "retryledger_alerts_external_" + name, Help: help}, []string{"alertmanager"})
	}
	return &pushMetrics{
		sent:     counter("sent_total", "Alerts that the Alertmanager took, refreshes included."),
		refused:  counter("refused_total", "Alerts in requests that the Alertmanager refused as invalid, which are not sent again as they are."),
		failures: counter("failed_requests_total", "Requests that failed and are tried again."),
	}
}

// sender tells one Alertmanager.
type sender struct {
	of     *external
	config confighttp.ClientConfig
	url    *url.URL
	client *http.Client
	woken  chan struct{}

	sent, refused, failures prometheus.Counter

	mu          sync.Mutex
	lastSuccess time.Time
	lastError   string
}

func newSender(of *external, config *confighttp.ClientConfig, m *pushMetrics) (*sender, error) {
	u, err := parseURL(config.Endpoint)
	if err != nil {
		return nil, err
	}
	s := &sender{of: of, config: *config, url: u, woken: make(chan struct{}, 1)}
	if s.config.Timeout <= 0 {
		s.config.Timeout = sendTimeout
	}
	where := u.Redacted()
	s.sent, s.refused, s.failures = m.sent.WithLabelValues(where), m.refused.WithLabelValues(where), m.failures.WithLabelValues(where)
	return s, nil
}

func (s *sender) connect(ctx context.Context, host component.Host, telemetry component.TelemetrySettings) error {
	var extensions map[component.ID]component.Component
	if host != nil {
		extensions = host.GetExtensions()
	}
	var err error
	if s.client, err = s.config.ToClient(ctx, extensions, telemetry); err != nil {
		return fmt.Errorf("make a client for Alertmanager %s: %w", s.url.Redacted(), err)
	}
	return nil
}

func (s *sender) wake() {
	select {
	case s.woken <- struct{}{}:
	default:
	}
}

// run sends until it is stopped, and then once more.
func (s *sender) run(ctx context.Context) {
	wait := backoff.NewExponentialBackOff()
	wait.InitialInterval, wait.MaxInterval = minBackoff, maxBackoff
	wait.Reset()
	timer := time.NewTimer(0)
	defer timer.Stop()
	failing := false
	for {
		woken := s.woken
		if failing {
			woken = nil // a new alert does not shorten the backoff
		}
		select {
		case <-s.of.stop:
			for {
				if again, err := s.send(ctx); err != nil || again.After(time.Now()) {
					return
				}
			}
		case <-woken:
		case <-timer.C:
		}
		next, err := s.send(ctx)
		if err != nil {
			delay := wait.NextBackOff()
			if !failing {
				s.of.logger().Warn("an Alertmanager does not take alerts; they are sent again",
					zap.String("alertmanager", s.url.Redacted()), zap.Error(err))
			}
			failing = true
			timer.Reset(delay)
			continue
		}
		if failing {
			s.of.logger().Info("an Alertmanager takes alerts again", zap.String("alertmanager", s.url.Redacted()))
		}
		failing = false
		wait.Reset()
		timer.Reset(time.Until(next))
	}
}

// send tells what is due, in one request. It returns when there is more to tell, or why it failed.
func (s *sender) send(ctx context.Context) (next time.Time, err error) {
	now := time.Now()
	out, next := s.of.due(s, now)
	if len(out.held) == 0 {
		return next, nil
	}
	err = s.post(ctx, out.alerts)
	s.note(now, err)
	if r := new(refusedError); errors.As(err, &r) {
		s.refused.Add(float64(len(out.held)))
		s.of.logger().Error("an Alertmanager refused alerts", zap.String("alertmanager", s.url.Redacted()), zap.Error(err))
		s.of.know(s, out, now) // the same again would be refused again
		return next, nil
	}
	if err != nil {
		s.failures.Inc()
		return time.Time{}, err
	}
	s.sent.Add(float64(len(out.held)))
	s.of.know(s, out, now)
	return next, nil
}

// refusedError is an answer to a request that is wrong in itself. Alertmanager takes the valid alerts of it.
type refusedError struct{ status, body string }

func (r *refusedError) Error() string { return fmt.Sprintf("%s: %s", r.status, r.body) }

func (s *sender) post(ctx context.Context, alerts []wireAlert) error {
	body, err := json.Marshal(alerts)
	if err != nil {
		return fmt.Errorf("encode alerts: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, s.config.Timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url.JoinPath("api/v2/alerts").String(), bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("make a request: %w", err)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Close = true // a request a minute is not worth a connection, which would outlive a shutdown
	response, err := s.client.Do(request)
	if err != nil {
		if u := new(url.Error); errors.As(err, &u) {
			err = u.Err // without the address, which may hold a secret in its query
		}
		return err
	}
	defer response.Body.Close()
	answer, _ := io.ReadAll(io.LimitReader(response.Body, 1<<10)) // for the message only
	switch {
	case response.StatusCode < 300:
		return nil
	case response.StatusCode == http.StatusBadRequest:
		return &refusedError{response.Status, string(answer)}
	}
	return fmt.Errorf("%s: %s", response.Status, bytes.TrimSpace(answer))
}

func (s *sender) note(now time.Time, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.lastError = err.Error()
		return
	}
	s.lastSuccess, s.lastError = now, ""
}

func (s *sender) status() AlertmanagerStatus {
	pending := s.of.pending(s)
	s.mu.Lock()
	defer s.mu.Unlock()
	return AlertmanagerStatus{URL: s.url.Redacted(), LastSuccess: s.lastSuccess, LastError: s.lastError, Pending: pending}
}
