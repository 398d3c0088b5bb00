package delivery

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/alertmanager/alert"
	"github.com/prometheus/alertmanager/notify"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
)

type panicking struct{}

func (panicking) Notify(context.Context, ...*alert.Alert) notify.NotifyVerdict {
	panic(errors.New("nil map"))
}
func (panicking) SendResolved() bool { return true }

func TestAReceiverThatPanicsIsAFailure(t *testing.T) {
	t.Parallel()
	i := contain(notify.NewIntegration(panicking{}, panicking{}, "webhook", 3, "team"), "team", new(atomic.Int64))
	verdict := i.Notify(context.Background())
	require.ErrorContains(t, verdict.Err(), "webhook[3] panicked: nil map")
	require.True(t, verdict.ShouldRetry())
	require.Equal(t, 3, i.Index())
	require.True(t, i.SendResolved())
}

func TestAReceiverThatHangsHoldsUpNobodyElse(t *testing.T) {
	t.Parallel()
	hangs, works := newWebhook(t), newWebhook(t)
	hangs.answer(func(r *http.Request) int { <-r.Context().Done(); return http.StatusOK })
	d := start(t, works.config("")+"      - url: "+hangs.URL+"/hangs\n")
	for i := range 20 {
		d.put(t, firing(fmt.Sprint("A", i)))
	}
	for i := range 20 {
		works.waitFor(t, fmt.Sprint("firing A", i))
		hangs.waitFor(t, fmt.Sprint("firing A", i))
	}
	require.NoError(t, d.Shutdown(context.Background())) // although requests are under way
}

func TestAReceiverThatFailsIsToldAgain(t *testing.T) {
	t.Parallel()
	hook := newWebhook(t)
	hook.answer(func(*http.Request) int { return http.StatusServiceUnavailable })
	d := start(t, hook.config(""))
	d.put(t, firing("Late"))
	require.Eventually(t, func() bool { return len(hook.notifications()) > 1 }, patience, 5*time.Millisecond)
	hook.answer(nil)
	tried := len(hook.notifications())
	require.Eventually(t, func() bool { return len(hook.notifications()) > tried }, patience, 5*time.Millisecond)
	require.Eventually(t, func() bool { // a 2xx ends it
		return metric(t, d.Metrics(), "alertmanager_notification_requests_failed_total", "webhook") <
			metric(t, d.Metrics(), "alertmanager_notification_requests_total", "webhook")
	}, patience, 5*time.Millisecond)
}

// TestNoSecretInLogsOrAPI lets receivers of all kinds fail with secrets in every place a configuration has for them.
func TestNoSecretInLogsOrAPI(t *testing.T) {
	t.Parallel()
	hook := newWebhook(t)
	hook.answer(func(*http.Request) int { return http.StatusInternalServerError })
	closed := "http://127.0.0.1:1"
	conf := fmt.Sprintf(`
global:
  slack_api_url: %[2]s/services/SECRET-global
route: {receiver: all, group_by: ['...'], group_wait: 0s, group_interval: 5s}
receivers:
  - name: all
    webhook_configs:
      - url: %[1]s/SECRET-path?token=SECRET-query
      - url: %[2]s/SECRET-path?token=SECRET-query
        http_config: {basic_auth: {username: me, password: SECRET-password}}
      - url: %[1]s/hook
        http_config: {authorization: {credentials: SECRET-bearer}}
    slack_configs:
      - channel: ops
      - channel: ops
        api_url: %[1]s/services/SECRET-slack
    pagerduty_configs:
      - routing_key: SECRET-pagerduty
        url: %[1]s/pagerduty
      - service_key: SECRET-service
        url: %[2]s/pagerduty
    opsgenie_configs:
      - api_key: SECRET-opsgenie
        api_url: %[1]s/
    telegram_configs:
      - bot_token: SECRET-telegram
        chat_id: 1
        api_url: %[2]s
    email_configs:
      - to: a@example.com
        from: b@example.com
        smarthost: 127.0.0.1:1
        auth_username: me
        auth_password: SECRET-mail
`, hook.URL, closed)
	core, logs := observer.New(zapcore.DebugLevel)
	d := start(t, conf, func(_ *Config, s *Settings) { s.Telemetry.Logger = zap.New(core) })
	d.put(t, firing("Leak"))
	const receivers = 10
	require.Eventually(t, func() bool {
		return logs.FilterMessageSnippet("Notify attempt failed").Len()+logs.FilterMessageSnippet("Notify failed").Len() >= receivers
	}, patience, 10*time.Millisecond)
	status := request(t, http.MethodGet, d.url("/api/v2/status"), "", http.StatusOK)
	require.NoError(t, d.Shutdown(context.Background()))

	require.NotContains(t, status, "SECRET")
	encoder := zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig())
	kinds := map[string]bool{}
	for _, entry := range logs.All() {
		line, err := encoder.EncodeEntry(entry.Entry, entry.Context)
		require.NoError(t, err)
		require.NotContains(t, line.String(), "SECRET")
		var fields map[string]any
		require.NoError(t, json.Unmarshal(line.Bytes(), &fields))
		if integration, ok := fields["integration"].(string); ok && strings.Contains(entry.Message, "Notify") {
			kinds[strings.TrimRight(integration, "[]0123456789")] = true
		}
	}
	for _, kind := range []string{"webhook", "slack", "pagerduty", "opsgenie", "telegram", "email"} {
		require.True(t, kinds[kind], "%s did not fail", kind)
	}
}
