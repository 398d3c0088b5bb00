package delivery

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componenttest"
)

const prefix = "/alertmanager"

// running is a Deliverer with its files.
type running struct {
	Deliverer
	api  *httptest.Server
	file string // Alertmanager configuration
	dir  string // data
}

func write(tb testing.TB, path, content string) {
	tb.Helper()
	require.NoError(tb, os.WriteFile(path, []byte(content), 0o600))
}

// settings are a process's.
func settings(tb testing.TB, dir string) Settings {
	tb.Helper()
	return Settings{DataDir: dir, RoutePrefix: prefix, Telemetry: componenttest.NewNopTelemetrySettings()}
}

// start runs a Deliverer with an Alertmanager configuration until the end of the test.
func start(tb testing.TB, alertmanager string, change ...func(*Config, *Settings)) *running {
	tb.Helper()
	dir := tb.TempDir()
	r := &running{file: filepath.Join(dir, "alertmanager.yml"), dir: filepath.Join(dir, "data")}
	write(tb, r.file, alertmanager)
	r.begin(tb, change...)
	return r
}

func (r *running) begin(tb testing.TB, change ...func(*Config, *Settings)) {
	tb.Helper()
	cfg, set := NewDefaultConfig(), settings(tb, r.dir)
	cfg.ConfigFile = r.file
	for _, c := range change {
		c(&cfg, &set)
	}
	d, err := New(&cfg, set)
	require.NoError(tb, err)
	require.NoError(tb, d.Start(context.Background(), componenttest.NewNopHost()))
	r.Deliverer = d
	r.api = httptest.NewServer(d.Handler())
	tb.Cleanup(r.end(tb))
}

func (r *running) end(tb testing.TB) func() {
	tb.Helper()
	d, api := r.Deliverer, r.api
	return func() {
		api.Close()
		require.NoError(tb, d.Shutdown(context.Background()))
	}
}

// inside is what a test cannot see from outside.
func inside(tb testing.TB, d *running) *embedded {
	tb.Helper()
	e, ok := d.Deliverer.(*embedded)
	require.True(tb, ok)
	return e
}

// logged waits until it is known of n groups that people were told. Until then a reload or a restart tells them again.
func (r *running) logged(tb testing.TB, n int) {
	tb.Helper()
	require.Eventually(tb, func() bool {
		var b bytes.Buffer
		_, err := inside(tb, r).nflog.Snapshot(&b)
		require.NoError(tb, err)
		entries := 0
		for snapshot := b.Bytes(); len(snapshot) > 0; entries++ {
			length, width := binary.Uvarint(snapshot)
			snapshot = snapshot[width+int(length):]
		}
		return entries >= n
	}, patience, time.Millisecond)
}

// restart ends it and begins again on the same files.
func (r *running) restart(tb testing.TB, change ...func(*Config, *Settings)) {
	tb.Helper()
	r.end(tb)()
	r.begin(tb, change...)
}

// request sends to the API and returns the answer's body.
func request(tb testing.TB, method, url, body string, status int) string {
	tb.Helper()
	req, err := http.NewRequestWithContext(context.Background(), method, url, strings.NewReader(body))
	require.NoError(tb, err)
	req.Header.Set("Content-Type", "application/json")
	req.Close = true
	res, err := http.DefaultClient.Do(req)
	require.NoError(tb, err)
	defer func() { require.NoError(tb, res.Body.Close()) }()
	answer, err := io.ReadAll(res.Body)
	require.NoError(tb, err)
	require.Equal(tb, status, res.StatusCode, "%s %s: %s", method, url, answer)
	return string(answer)
}

func (r *running) url(path string) string { return r.api.URL + prefix + path }

// began is when alerts of tests began to fire: whole seconds, as Alertmanager's JSON keeps milliseconds.
func began() time.Time { return time.Now().Add(-time.Minute).Truncate(time.Second).UTC() }

func firing(name string, labels ...string) Alert {
	a := Alert{Labels: map[string]string{"alertname": name}, StartsAt: began()}
	for i := 0; i+1 < len(labels); i += 2 {
		a.Labels[labels[i]] = labels[i+1]
	}
	return a
}

func resolved(a Alert) Alert {
	a.EndsAt = time.Now()
	return a
}

func (r *running) put(tb testing.TB, alerts ...Alert) {
	tb.Helper()
	require.NoError(tb, r.Put(context.Background(), alerts...))
}

// metric sums the series of a metric whose labels have all the given values.
func metric(tb testing.TB, from prometheus.Gatherer, name string, values ...string) (sum float64) {
	tb.Helper()
	families, err := from.Gather()
	require.NoError(tb, err)
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			if has(m, values) {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return sum
}

func has(m *dto.Metric, values []string) bool {
	for _, v := range values {
		found := false
		for _, l := range m.GetLabel() {
			found = found || l.GetValue() == v
		}
		if !found {
			return false
		}
	}
	return true
}

func TestTellsOnceThatAlertsFireAndAreResolved(t *testing.T) {
	t.Parallel()
	hook := newWebhook(t)
	d := start(t, hook.config(""))
	require.True(t, d.Status().Ready)

	a := firing("StepErrors", "service", "shop", "step", "plan", "empty", "")
	a.Annotations = map[string]string{"summary": "12 of 300 failed"}
	a.GeneratorURL = "http://localhost/why"
	d.put(t, a)
	hook.waitFor(t, "firing StepErrors")
	got := hook.notifications()[0].Alerts[0]
	require.Equal(t, map[string]string{"alertname": "StepErrors", "service": "shop", "step": "plan"}, got.Labels)
	require.Equal(t, a.Annotations, got.Annotations)
	require.Equal(t, a.GeneratorURL, got.GeneratorURL)
	require.True(t, a.StartsAt.Equal(got.StartsAt))
	require.Equal(t, "http://localhost"+prefix, hook.notifications()[0].ExternalURL)

	for range 50 { // as an evaluator does each second
		a.Annotations["summary"] += "."
		d.put(t, a)
	}
	end := resolved(a)
	require.Eventually(t, func() bool {
		d.put(t, end)
		return hook.told()["resolved StepErrors"] > 0
	}, patience, 20*time.Millisecond)
	last := hook.notifications()[1].Alerts[0]
	require.WithinDuration(t, end.EndsAt, last.EndsAt, time.Millisecond)
	require.Equal(t, map[string]int{"firing StepErrors": 1, "resolved StepErrors": 1}, hook.told())
}

func TestAlertThatIsNotPutAgainResolves(t *testing.T) {
	t.Parallel()
	hook := newWebhook(t)
	d := start(t, hook.config(""))
	a := firing("Stalled")
	a.EndsAt = time.Now().Add(2 * time.Second)
	d.put(t, a)
	hook.waitFor(t, "firing Stalled")
	hook.waitFor(t, "resolved Stalled")
}

func TestLeaseMayBeEndedBeforeItPasses(t *testing.T) {
	t.Parallel()
	hook := newWebhook(t)
	d := start(t, hook.config(""))
	a := firing("Brief")
	d.put(t, a)
	hook.waitFor(t, "firing Brief")
	d.put(t, resolved(a))
	hook.waitFor(t, "resolved Brief")
}

func TestFlappingTellsFew(t *testing.T) {
	t.Parallel()
	hook := newWebhook(t)
	d := start(t, hook.config(""))
	var last Alert
	for range 30 {
		a := firing("Flap")
		a.StartsAt = time.Now()
		d.put(t, a)
		time.Sleep(20 * time.Millisecond)
		d.put(t, resolved(a))
		time.Sleep(20 * time.Millisecond)
		last = resolved(a)
	}
	require.Eventually(t, func() bool {
		d.put(t, last)
		return hook.told()["resolved Flap"] > 0
	}, patience, 20*time.Millisecond)
	// Sixty changes: the first is told, then at most one state each group_interval.
	require.LessOrEqual(t, len(hook.notifications()), 4)
}

func TestGroups(t *testing.T) {
	t.Parallel()
	hook := newWebhook(t)
	d := start(t, hook.config("group_by: [service]\n  group_wait: 1s\n  group_interval: 5s"))
	alerts := []Alert{firing("A", "service", "shop"), firing("B", "service", "shop"), firing("C", "service", "shop")}
	for i := range alerts {
		alerts[i].StartsAt = time.Now() // group_wait does not hold back what began earlier
	}
	d.put(t, alerts...)
	hook.waitFor(t, "firing C")
	require.Len(t, hook.notifications(), 1)
	require.Len(t, hook.notifications()[0].Alerts, 3)
}

func TestSilenceInhibitionAndMuteTimesKeepQuiet(t *testing.T) {
	t.Parallel()
	hook := newWebhook(t)
	conf := hook.config(`group_by: ['...']
  group_wait: 0s
  group_interval: 5s
  routes:
    - matchers: [team = "asleep"]
      mute_time_intervals: [always]`) + `
inhibit_rules:
  - source_matchers: [severity = page]
    target_matchers: [severity = ticket]
    equal: [service]
time_intervals:
  - name: always
    time_intervals: [{times: [{start_time: "00:00", end_time: "24:00"}]}]
`
	d := start(t, conf)
	suppressed := func(reason string) float64 {
		return metric(t, d.Metrics(), "alertmanager_notifications_suppressed_total", reason)
	}

	until := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
	silence := request(t, http.MethodPost, d.url("/api/v2/silences"), `{"matchers":[{"name":"alertname","value":"Quiet","isRegex":false}],
		"startsAt":"`+time.Now().UTC().Format(time.RFC3339)+`","endsAt":"`+until+`","createdBy":"me","comment":"known"}`, http.StatusOK)
	id := strings.Split(silence, `"`)[3]

	d.put(t, firing("Quiet"))
	d.put(t, firing("Loud", "severity", "page", "service", "shop"))
	hook.waitFor(t, "firing Loud")
	d.put(t, firing("Lesser", "severity", "ticket", "service", "shop"))
	d.put(t, firing("Night", "team", "asleep"))
	for _, reason := range []string{"silence", "inhibition", "mute_time_interval"} {
		require.Eventually(t, func() bool { return suppressed(reason) > 0 }, patience, 5*time.Millisecond, reason)
	}
	require.Equal(t, map[string]int{"firing Loud": 1}, hook.told())
	require.Contains(t, request(t, http.MethodGet, d.url("/api/v2/alerts?filter=alertname=Quiet"), "", http.StatusOK), `"silencedBy":["`+id)
	muted := func(a Alert) string { return d.Muted(a.Labels) }
	require.Equal(t, Silenced, muted(firing("Quiet")))
	require.Equal(t, Inhibited, muted(firing("Lesser", "severity", "ticket", "service", "shop")))
	require.Empty(t, muted(firing("Loud", "severity", "page", "service", "shop")))

	request(t, http.MethodDelete, d.url("/api/v2/silence/"+id), "", http.StatusOK)
	hook.waitFor(t, "firing Quiet")
	require.Empty(t, muted(firing("Quiet")))
	require.Zero(t, hook.told()["firing Lesser"]+hook.told()["firing Night"])
}

func TestInvalidAlertsAreToldAndTheOthersTaken(t *testing.T) {
	t.Parallel()
	hook := newWebhook(t)
	d := start(t, hook.config(""))
	backwards := firing("Backwards")
	backwards.EndsAt = backwards.StartsAt.Add(-time.Second)
	err := d.Put(context.Background(), Alert{StartsAt: began()}, backwards,
		Alert{Labels: map[string]string{"alertname": "NoStart"}}, firing("Bad", "service", "\xff"), firing("Good"))
	require.ErrorIs(t, err, ErrInvalidAlert)
	for _, says := range []string{"at least one label", "start time must be before end time", "start time missing", "invalid label"} {
		require.ErrorContains(t, err, says)
	}
	hook.waitFor(t, "firing Good")
	require.Len(t, hook.told(), 1)
}

func TestMoreAlertsThanFitAreRefused(t *testing.T) {
	t.Parallel()
	d := start(t, defaultConfig)
	inside(t, d).held.n.Add(maxAlerts - 2)
	d.put(t, firing("One"), firing("Two"))
	err := d.Put(context.Background(), firing("One"), firing("Three"))
	require.ErrorIs(t, err, ErrTooManyAlerts)
	require.ErrorContains(t, err, "1 were refused")
	d.put(t, firing("Two"), resolved(firing("One"))) // those that are held can change
}

func TestNotRunning(t *testing.T) {
	t.Parallel()
	cfg := NewDefaultConfig()
	d, err := New(&cfg, settings(t, t.TempDir()))
	require.NoError(t, err)
	rejects := func() {
		require.ErrorIs(t, d.Put(context.Background(), firing("A")), ErrNotRunning)
		require.ErrorIs(t, d.Reload(context.Background()), ErrNotRunning)
		require.False(t, d.Status().Ready)
		w := httptest.NewRecorder()
		d.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, prefix+"/api/v2/status", http.NoBody))
		require.Equal(t, http.StatusServiceUnavailable, w.Code)
	}
	rejects()
	require.NoError(t, d.Shutdown(context.Background()))
	rejects()
	require.Error(t, d.Start(context.Background(), nil), "what was shut down does not start")
}

func TestCallsAtTheSameTime(t *testing.T) {
	t.Parallel()
	hook := newWebhook(t)
	d := start(t, hook.config(""))
	stop := make(chan struct{})
	done := make(chan struct{})
	for _, do := range []func(){
		func() { _ = d.Put(context.Background(), firing("Busy")) },
		func() { _ = d.Reload(context.Background()) },
		func() { _ = d.Status() },
		func() { _, _ = d.Metrics().Gather() },
		func() {
			w := httptest.NewRecorder()
			d.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, prefix+"/api/v2/alerts/groups", http.NoBody))
		},
	} {
		go func() {
			defer func() { done <- struct{}{} }()
			for {
				select {
				case <-stop:
					return
				default:
					do()
				}
			}
		}()
	}
	hook.waitFor(t, "firing Busy")
	require.NoError(t, d.Shutdown(context.Background()))
	close(stop)
	for range 5 {
		<-done
	}
}
