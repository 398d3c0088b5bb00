package report

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/config/confighttp"
	"go.uber.org/zap/zaptest"

	"github.com/retryledger/retryledger/alerts/rules"
	"github.com/retryledger/retryledger/alerts/signals"
	"github.com/retryledger/retryledger/analysis/answer"
	"github.com/retryledger/retryledger/schema"
)

// asker asks the handlers as the API serves them.
type asker struct {
	http.Handler
	settings Settings
}

func newAsker(t *testing.T, change func(*Settings)) asker {
	t.Helper()
	atOnce := func(context.Context) (func(), error) { return func() {}, nil }
	s := Settings{Now: time.Now, Turn: atOnce, Rules: rules.Default, Alerts: func() Alerts { return Alerts{Alerts: []Alert{}} }, Logger: zaptest.NewLogger(t)}
	change(&s)
	mux := http.NewServeMux()
	for pattern, handler := range Routes(s) {
		mux.Handle(pattern, handler)
	}
	return asker{mux, s}
}

func (a asker) ask(t *testing.T, method, target, body string, out any) int {
	t.Helper()
	w := httptest.NewRecorder()
	a.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, target, strings.NewReader(body)))
	require.Equal(t, "application/json", w.Header().Get("Content-Type"))
	content, err := io.ReadAll(w.Body)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(content, out), string(content))
	return w.Code
}

func (a asker) refused(t *testing.T, status int, method, target, body string) string {
	t.Helper()
	var failure answer.Failure
	require.Equal(t, status, a.ask(t, method, target, body, &failure), target)
	require.NotEmpty(t, failure.Error)
	return failure.Error
}

func noStore(context.Context) (driver.Conn, error) { return nil, errors.New("it is away") }

func TestMistakesAreAnsweredWithRemedies(t *testing.T) {
	t.Parallel()
	a := newAsker(t, func(s *Settings) { s.Conn = noStore })
	for _, c := range []struct {
		status               int
		method, target, body string
		says                 string
	}{
		{http.StatusMethodNotAllowed, "POST", AlertsPath, "", "ask with GET"},
		{http.StatusMethodNotAllowed, "DELETE", HistoryPath, "", "ask with GET"},
		{http.StatusMethodNotAllowed, "GET", ReplayPath, "", "ask with POST"},
		{http.StatusBadRequest, "GET", AlertsPath + "?state=firing", "", `no parameter "state"`},
		{http.StatusBadRequest, "GET", HistoryPath + "?limits=1", "", "it takes since, until, rule, limit"},
		{http.StatusBadRequest, "GET", HistoryPath + "?limit=0", "", "from 1 to 10000"},
		{http.StatusBadRequest, "GET", HistoryPath + "?limit=10001", "", "from 1 to 10000"},
		{http.StatusBadRequest, "GET", HistoryPath + "?limit=ten", "", "from 1 to 10000"},
		{http.StatusBadRequest, "GET", HistoryPath + "?since=soon", "", "parameter since"},
		{http.StatusBadRequest, "GET", HistoryPath + "?since=1h&until=2h", "", "before until"},
		{http.StatusBadRequest, "GET", AlertsPath + "/no-hex", "", "16 hex digits"},
		{http.StatusBadRequest, "GET", AlertsPath + "/f123456789abcdef0", "", "16 hex digits"},
		{http.StatusBadRequest, "POST", ReplayPath, "", "7d"},
		{http.StatusBadRequest, "POST", ReplayPath + "?since=32d", "", "at most 31 days"},
		{http.StatusBadRequest, "POST", ReplayPath + "?since=2100-01-01T00:00:00Z", "", "before until, or now"},
		{http.StatusBadRequest, "POST", ReplayPath + "?since=1h&step=1", "", `no parameter "step"`},
		{http.StatusBadRequest, "POST", ReplayPath + "?since=1h", "rules:\n  - {name: x}\n", "rules:2: "},
		{http.StatusBadRequest, "POST", ReplayPath + "?since=1h", strings.Repeat("#", rules.MaxFileBytes+1), "larger than"},
		{http.StatusServiceUnavailable, "GET", HistoryPath, "", "the store is not ready"},
		{http.StatusServiceUnavailable, "GET", AlertsPath + "/0", "", "the store is not ready"},
		{http.StatusServiceUnavailable, "POST", ReplayPath + "?since=1h", "", "the store is not ready"},
	} {
		assert.Contains(t, a.refused(t, c.status, c.method, c.target, c.body), c.says, "%s %s", c.method, c.target)
	}
	w := httptest.NewRecorder()
	a.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPut, AlertsPath, http.NoBody))
	assert.Equal(t, "GET, HEAD", w.Header().Get("Allow"))
}

// What asks the store takes its turn, and gives it back whatever came of it; what is known
// without the store waits for nobody.
func TestQuestionsTakeTurns(t *testing.T) {
	t.Parallel()
	taken, given := 0, 0
	full := false
	a := newAsker(t, func(s *Settings) {
		s.Conn = noStore
		s.Turn = func(context.Context) (func(), error) {
			if full {
				return nil, answer.Refuse(http.StatusServiceUnavailable, "too many questions")
			}
			taken++
			return func() { given++ }, nil
		}
	})
	asks := []struct{ method, target string }{{"GET", HistoryPath}, {"GET", AlertsPath + "/0"}, {"POST", ReplayPath + "?since=1h"}}
	for i, c := range asks {
		assert.Contains(t, a.refused(t, http.StatusServiceUnavailable, c.method, c.target, ""), "not ready")
		assert.Equal(t, []int{i + 1, i + 1}, []int{taken, given}, c.target)
	}
	full = true
	for _, c := range asks {
		assert.Contains(t, a.refused(t, http.StatusServiceUnavailable, c.method, c.target, ""), "too many questions", c.target)
	}
	var alerts Alerts
	assert.Equal(t, http.StatusOK, a.ask(t, "GET", AlertsPath, "", &alerts))
	var inForce Rules
	assert.Equal(t, http.StatusOK, a.ask(t, "GET", RulesPath, "", &inForce))
}

func TestAlertsAndRulesAsTheyAre(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)
	state := rules.AlertState{Rule: "step_errors", Signal: signals.OperationErrorRatio, State: rules.StateFiring, StartsAt: at, Numerator: 9, Denominator: 412, Threshold: 20_000, Window: 2 * time.Minute}
	want := Alerts{EvaluatedAt: &at, Rules: 11, Alerts: []Alert{AlertOf(&state, 0xabc, rules.Explanation{TopError: "E", TopErrorCount: 3, Runs: []string{"r"}}, map[string]string{"summary": "s"})}}
	a := newAsker(t, func(s *Settings) { s.Conn, s.Alerts = noStore, func() Alerts { return want } })
	var got Alerts
	require.Equal(t, http.StatusOK, a.ask(t, http.MethodGet, AlertsPath, "", &got), "no store is needed")
	require.Equal(t, want, got)
	require.Equal(t, "0000000000000abc", got.Alerts[0].Fingerprint)
	require.InDelta(t, 9.0/412, got.Alerts[0].Ratio, 1e-12)
	require.InDelta(t, 0.02, got.Alerts[0].Threshold, 1e-12)

	var listed Rules
	require.Equal(t, http.StatusOK, a.ask(t, http.MethodGet, RulesPath, "", &listed))
	require.Len(t, listed.Rules, 11)
	require.Equal(t, Rule{
		Name: "step_errors", Condition: "operation_error_ratio above 2 % over 2m by service, step", Signal: "operation_error_ratio", Threshold: 0.02,
		WindowSeconds: 120, GroupBy: []string{"service", "step"}, MinSamples: 50, KeepSeconds: 120, Labels: map[string]string{"severity": "page"}, DefaultPack: true,
	}, listed.Rules[0])
}

// told is the history of one alert that fired three times, and of another rule's.
func told(now time.Time) (transitions []schema.AlertTransition, samples []schema.AlertSample) {
	group := schema.AlertGroup{Service: "shop", Step: "rank"}
	change := func(before time.Duration, from, to string) {
		transitions = append(transitions, schema.AlertTransition{
			At: now.Add(-before), Rule: "step_errors", Signal: "operation_error_ratio", Group: group, Fingerprint: 0xabc, Labels: map[string]string{"step": "rank"},
			From: from, To: to, Reason: "breach", WindowS: 120, Numerator: 3, Denominator: 100, Threshold: 0.02, MinSamples: 50, Runs: []string{"run-1"},
		})
	}
	change(5*time.Hour, "inactive", "pending")
	change(5*time.Hour-time.Minute, "pending", "firing")
	change(4*time.Hour, "firing", "resolved")
	change(3*time.Hour, "inactive", "firing")
	change(2*time.Hour, "firing", "resolved")
	change(time.Hour, "inactive", "firing")
	other := transitions[0]
	other.Rule, other.Fingerprint = "fallbacks", 0xdef
	transitions = append(transitions, other)
	for s := range 6 * 3600 / 10 { // every tenth second, to be quick
		at := now.Add(-time.Duration(s) * 10 * time.Second)
		samples = append(samples,
			schema.AlertSample{Instant: at, Rule: "step_errors", Group: group, WindowS: 120, Numerator: 3, Denominator: 100, Threshold: 0.02, State: "firing"},
			schema.AlertSample{Instant: at, Rule: "step_errors", Group: schema.AlertGroup{Service: "shop", Step: "other"}, WindowS: 120, Numerator: 1, Denominator: 1000})
	}
	return transitions, samples
}

func TestHistoryAndWhy(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	now := time.Now().UTC().Truncate(time.Second)
	transitions, samples := told(now)
	require.NoError(t, schema.InsertAlertTransitions(t.Context(), db.Conn, transitions))
	require.NoError(t, schema.InsertAlertSamples(t.Context(), db.Conn, samples))
	a := newAsker(t, func(s *Settings) {
		s.Conn = func(context.Context) (driver.Conn, error) { return db.Conn, nil }
		s.Now = func() time.Time { return now }
		s.Alerts = func() Alerts {
			return Alerts{Alerts: []Alert{{Fingerprint: "0000000000000abd"}, {Fingerprint: "0000000000000abc", Held: "no_data", HeldSince: &now}}}
		}
	})
	history := func(query string) History {
		var found History
		require.Equal(t, http.StatusOK, a.ask(t, http.MethodGet, HistoryPath+query, "", &found), query)
		return found
	}
	all := history("")
	require.Len(t, all.Transitions, 7)
	require.False(t, all.More)
	require.Equal(t, now.Add(-time.Hour), all.Transitions[0].At, "the latest first")
	require.Equal(t, "0000000000000abc", all.Transitions[0].Fingerprint)
	require.InDelta(t, 0.03, *all.Transitions[0].Ratio, 1e-12)
	require.Equal(t, []string{"run-1"}, all.Transitions[0].Runs)
	require.Len(t, history("?rule=fallbacks").Transitions, 1)
	require.Empty(t, history("?rule=nothing").Transitions)
	require.Len(t, history("?since=150m").Transitions, 2)
	require.Len(t, history("?since=210m&until=90m").Transitions, 2)
	limited := history("?limit=2&rule=step_errors")
	require.True(t, limited.More)
	require.Equal(t, []time.Time{now.Add(-time.Hour), now.Add(-2 * time.Hour)}, []time.Time{limited.Transitions[0].At, limited.Transitions[1].At})
	require.False(t, history("?limit=7").More)

	why := func() Why {
		var found Why
		require.Equal(t, http.StatusOK, a.ask(t, http.MethodGet, AlertsPath+"/0000000000000abc", "", &found))
		require.Equal(t, "operation_error_ratio above 2 % over 2m by service, step", found.Condition)
		require.Equal(t, "no_data", found.Held)
		require.Equal(t, now, *found.HeldSince)
		for i := range found.Samples {
			require.EqualValues(t, 100, found.Samples[i].Denominator, "the group's own")
			require.InDelta(t, 0.03, found.Samples[i].Ratio, 1e-12)
			require.True(t, i == 0 || found.Samples[i].Instant.After(found.Samples[i-1].Instant))
		}
		return found
	}
	found := why()
	require.Len(t, found.Transitions, 6)
	// It fires for an hour: its beginning and its end are shown, and not earlier times.
	require.Equal(t, now.Add(-time.Hour-2*time.Minute), found.Samples[0].Instant)
	require.Equal(t, now, found.Samples[len(found.Samples)-1].Instant)
	require.Equal(t, &Period{now.Add(-45 * time.Minute), now.Add(time.Second - 15*time.Minute)}, found.LeftOff)
	require.Len(t, found.Samples, (17+15)*6)

	resolved := transitions[5]
	resolved.At, resolved.From, resolved.To, resolved.Reason = now.Add(-50*time.Minute), "firing", "resolved", "no_data"
	require.NoError(t, schema.InsertAlertTransitions(t.Context(), db.Conn, []schema.AlertTransition{resolved}))
	found = why()
	require.Nil(t, found.LeftOff)
	require.Equal(t, now.Add(-time.Hour-2*time.Minute), found.Samples[0].Instant)
	require.Equal(t, resolved.At, found.Samples[len(found.Samples)-1].Instant, "to its end")
	require.Contains(t, a.refused(t, http.StatusNotFound, http.MethodGet, AlertsPath+"/1", ""), "no alert has the fingerprint")

	// The beginning of a fingerprint is enough where no other alert's begins so.
	var begun Why
	require.Equal(t, http.StatusOK, a.ask(t, http.MethodGet, AlertsPath+"/0000000000000a", "", &begun))
	require.Equal(t, found.Transitions, begun.Transitions)
	require.Contains(t, a.refused(t, http.StatusConflict, http.MethodGet, AlertsPath+"/0000", ""),
		`"0000" begins the fingerprints of several alerts; give more of it: 0000000000000abc, 0000000000000def`)
	for _, none := range []string{"abc", "f", "0000000000000abd"} {
		require.Contains(t, a.refused(t, http.StatusNotFound, http.MethodGet, AlertsPath+"/"+none, ""), "no alert has the fingerprint", none)
	}
	for _, wrong := range []string{"x", "00000000000000abc", "-1", "+1", "0x1"} {
		require.Contains(t, a.refused(t, http.StatusBadRequest, http.MethodGet, AlertsPath+"/"+wrong, ""), "hex digits", wrong)
	}

	// A person who follows the link of a notification reads words.
	browse := func(fingerprint string) *httptest.ResponseRecorder {
		w, r := httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodGet, AlertsPath+"/"+fingerprint, http.NoBody)
		r.Header.Set("Accept", "text/html,application/xhtml+xml,*/*;q=0.8")
		a.ServeHTTP(w, r)
		return w
	}
	page := browse("0000000000000abc")
	require.Equal(t, http.StatusOK, page.Code)
	require.Equal(t, "text/plain; charset=utf-8", page.Header().Get("Content-Type"))
	require.Equal(t, "Accept", page.Header().Get("Vary"))
	require.Contains(t, page.Body.String(), "step_errors, service=shop step=rank: resolved since ")
	require.Equal(t, http.StatusNotFound, browse("1").Code)

	var replay Replay
	require.Equal(t, http.StatusOK, a.ask(t, http.MethodPost, ReplayPath+"?since=1h", "", &replay))
	require.Len(t, replay.Rules, 9, "those in force")
	require.Equal(t, 3600, replay.Evaluations)
	require.Equal(t, http.StatusOK, a.ask(t, http.MethodPost, ReplayPath+"?since=31d&until=1d", "default_pack: false\nrules: [{name: x, signal: retry_ratio, threshold: 1 %, window: 1m}]", &replay))
	require.Len(t, replay.Rules, 1)
	require.Equal(t, now.Add(-24*time.Hour), replay.Until)
	require.InDelta(t, 30, replay.StepSeconds, 0)
	require.Equal(t, 86_400, replay.Evaluations)
}

// A replay may take longer than the Collector's server lets an answer take, and ends
// when the collector does, which waits for its answers.
func TestAReplayOutlivesTheWriteTimeoutAndNotTheCollector(t *testing.T) {
	t.Parallel()
	for _, ended := range []bool{false, true} {
		ending, asked := make(chan struct{}), make(chan struct{})
		a := newAsker(t, func(s *Settings) {
			s.Ending = ending
			s.Conn = func(ctx context.Context) (driver.Conn, error) {
				close(asked)
				if !ended {
					time.Sleep(400 * time.Millisecond)
					return nil, errors.New("it is away")
				}
				<-ctx.Done()
				return nil, ctx.Err()
			}
		})
		config := confighttp.NewDefaultServerConfig()
		config.WriteTimeout = 200 * time.Millisecond
		collectors, err := config.ToServer(t.Context(), nil, componenttest.NewNopTelemetrySettings(), a)
		require.NoError(t, err)
		server := httptest.NewUnstartedServer(collectors.Handler)
		server.Config.WriteTimeout = collectors.WriteTimeout
		server.Start()
		if ended {
			go func() {
				<-asked
				close(ending)
			}()
		}
		response, err := server.Client().Post(server.URL+ReplayPath+"?since=1h", "", http.NoBody)
		require.NoError(t, err)
		var failure answer.Failure
		require.NoError(t, json.NewDecoder(response.Body).Decode(&failure))
		require.NoError(t, response.Body.Close())
		require.Equal(t, http.StatusServiceUnavailable, response.StatusCode)
		require.Contains(t, failure.Error, map[bool]string{false: "the store is not ready", true: "is being stopped"}[ended])
		server.Close()
	}
}

// The socket of the store may say so before the context does.
func TestAQuestionThatTookTooLong(t *testing.T) {
	t.Parallel()
	h := handler{Settings: Settings{Logger: zaptest.NewLogger(t)}}
	for _, err := range []error{context.DeadlineExceeded, os.ErrDeadlineExceeded} {
		w := httptest.NewRecorder()
		h.fail(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, HistoryPath, http.NoBody), fmt.Errorf("read: %w", err))
		assert.Equal(t, http.StatusGatewayTimeout, w.Code, err)
		assert.Contains(t, w.Body.String(), "ask for a shorter time")
	}
}

// One replay is worked on at a time, and one that nobody waits for any more ends.
func TestOneReplayAtATime(t *testing.T) {
	t.Parallel()
	asked := make(chan struct{})
	a := newAsker(t, func(s *Settings) {
		s.Conn = func(ctx context.Context) (driver.Conn, error) {
			close(asked)
			<-ctx.Done()
			return nil, ctx.Err()
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		a.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodPost, ReplayPath+"?since=1h", http.NoBody))
	}()
	<-asked
	require.Contains(t, a.refused(t, http.StatusServiceUnavailable, http.MethodPost, ReplayPath+"?since=1h", ""), "another replay")
	cancel()
	<-done
}
