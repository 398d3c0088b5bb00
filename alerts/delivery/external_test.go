package delivery

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/open-telemetry/opentelemetry-collector-contrib/extension/basicauthextension"
	"github.com/open-telemetry/opentelemetry-collector-contrib/extension/bearertokenauthextension"
	"github.com/prometheus/alertmanager/alert"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/config/configauth"
	"go.opentelemetry.io/collector/config/confighttp"
	"go.opentelemetry.io/collector/config/configoptional"
	"go.opentelemetry.io/collector/config/configtls"
	"go.opentelemetry.io/collector/extension"
	"go.opentelemetry.io/collector/extension/extensiontest"
)

// host has extensions.
type host struct {
	component.Host
	extensions map[component.ID]component.Component
}

func (h *host) GetExtensions() map[component.ID]component.Component { return h.extensions }

// push runs a Deliverer that sends to Alertmanagers at endpoints.
func push(tb testing.TB, with component.Host, resend time.Duration, clients ...confighttp.ClientConfig) Deliverer {
	tb.Helper()
	cfg := NewDefaultConfig()
	cfg.External = ExternalConfig{Alertmanagers: clients, ResendInterval: resend}
	d, err := New(&cfg, settings(tb, ""))
	require.NoError(tb, err)
	require.NoError(tb, d.Start(context.Background(), with))
	tb.Cleanup(func() { require.NoError(tb, d.Shutdown(context.Background())) })
	return d
}

func client(endpoint string) confighttp.ClientConfig {
	c := confighttp.NewDefaultClientConfig()
	c.Endpoint = endpoint
	return c
}

// gate forwards to an Alertmanager, unless it is shut.
type gate struct {
	*httptest.Server
	to       atomic.Pointer[url.URL]
	status   atomic.Int32 // answered instead of forwarding, if not 0
	requests atomic.Int32
	check    func(r *http.Request) bool
}

func newGate(tb testing.TB, to string, tls bool) *gate {
	tb.Helper()
	g := &gate{}
	g.point(tb, to)
	g.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		g.requests.Add(1)
		if status := int(g.status.Load()); status != 0 {
			http.Error(w, "not now", status)
			return
		}
		if g.check != nil && !g.check(r) {
			http.Error(w, "who are you?", http.StatusUnauthorized)
			return
		}
		(&httputil.ReverseProxy{
			Rewrite:   func(p *httputil.ProxyRequest) { p.SetURL(g.to.Load()) },
			Transport: &http.Transport{DisableKeepAlives: true},
		}).ServeHTTP(w, r)
	}))
	if tls {
		g.StartTLS()
	} else {
		g.Start()
	}
	tb.Cleanup(g.Close)
	return g
}

func (g *gate) point(tb testing.TB, to string) {
	tb.Helper()
	u, err := url.Parse(to)
	require.NoError(tb, err)
	g.to.Store(u)
}

// alertmanagerURL is an Alertmanager in another process, with hook as its receiver. Where the environment names a real
// one's binary, that is used instead of our own.
func alertmanagerURL(tb testing.TB, hook *webhook) string {
	tb.Helper()
	dir := tb.TempDir()
	s := &childSettings{ConfigFile: filepath.Join(dir, "alertmanager.yml"), DataDir: filepath.Join(dir, "data")}
	write(tb, s.ConfigFile, hook.config(""))
	if binary := os.Getenv("RETRYLEDGER_TEST_ALERTMANAGER"); binary != "" {
		return startAlertmanager(tb, binary, s)
	}
	return startChild(tb, s).url + prefix
}

func TestExternalAlertmanagersAreTold(t *testing.T) {
	t.Parallel()
	hooks := []*webhook{newWebhook(t), newWebhook(t)}
	d := push(t, componenttest.NewNopHost(), time.Minute,
		client(alertmanagerURL(t, hooks[0])), client(alertmanagerURL(t, hooks[1])+"/"))
	a := firing("StepErrors", "service", "shop")
	a.Annotations = map[string]string{"summary": "12 of 300 failed"}
	a.GeneratorURL = "http://localhost/why"
	require.NoError(t, d.Put(t.Context(), a))
	for _, hook := range hooks {
		hook.waitFor(t, "firing StepErrors")
		got := hook.notifications()[0].Alerts[0]
		require.Equal(t, a.Labels, got.Labels)
		require.Equal(t, a.Annotations, got.Annotations)
		require.Equal(t, a.GeneratorURL, got.GeneratorURL)
		require.True(t, a.StartsAt.Equal(got.StartsAt))
	}
	for range 50 {
		require.NoError(t, d.Put(t.Context(), a))
	}
	require.NoError(t, d.Put(t.Context(), resolved(a)))
	for _, hook := range hooks {
		hook.waitFor(t, "resolved StepErrors")
	}
	s := d.Status()
	require.True(t, s.Ready)
	require.Equal(t, "external", s.Mode)
	for _, am := range s.Alertmanagers {
		require.Empty(t, am.LastError)
		require.Zero(t, am.Pending)
		require.False(t, am.LastSuccess.IsZero())
		require.InDelta(t, 2, metric(t, d.Metrics(), "retryledger_alerts_external_sent_total", am.URL), 0, "what did not change was not sent")
	}

	require.NoError(t, d.Reload(t.Context()))
	w := httptest.NewRecorder()
	d.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/alertmanager/api/v2/status", http.NoBody))
	require.Equal(t, http.StatusNotFound, w.Code)
	require.Contains(t, w.Body.String(), s.Alertmanagers[0].URL)
}

func TestExternalAlertmanagerThatIsAwayIsToldLater(t *testing.T) {
	t.Parallel()
	hook := newWebhook(t)
	g := newGate(t, alertmanagerURL(t, hook), false)
	for _, status := range []int{http.StatusServiceUnavailable, http.StatusUnauthorized, http.StatusTooManyRequests} {
		g.status.Store(int32(status))
		before := g.requests.Load()
		d := push(t, componenttest.NewNopHost(), time.Minute, client(g.URL))
		a := firing("While" + http.StatusText(status)[:7])
		require.NoError(t, d.Put(t.Context(), a))
		require.Eventually(t, func() bool { return g.requests.Load() > before+1 }, patience, 5*time.Millisecond, "not tried again")
		s := d.Status().Alertmanagers[0]
		require.Contains(t, s.LastError, "not now")
		require.Equal(t, 1, s.Pending)
		g.status.Store(0)
		hook.waitFor(t, "firing "+a.Labels["alertname"])
		require.Eventually(t, func() bool { return d.Status().Alertmanagers[0].LastError == "" }, patience, 5*time.Millisecond)
	}
}

func TestExternalAlertsAreSentAgainBeforeTheyExpire(t *testing.T) {
	t.Parallel()
	hook := newWebhook(t)
	g := newGate(t, alertmanagerURL(t, hook), false)
	d := push(t, componenttest.NewNopHost(), time.Second, client(g.URL))
	require.NoError(t, d.Put(t.Context(), firing("Long")))
	hook.waitFor(t, "firing Long")
	// Another Alertmanager in its place, which knows nothing, is told within the interval.
	other := newWebhook(t)
	g.point(t, alertmanagerURL(t, other))
	other.waitFor(t, "firing Long")
}

func TestExternalRefusalIsNotSentAgain(t *testing.T) {
	t.Parallel()
	g := newGate(t, "http://127.0.0.1:1", false)
	g.status.Store(http.StatusBadRequest)
	d := push(t, componenttest.NewNopHost(), time.Minute, client(g.URL))
	require.NoError(t, d.Put(t.Context(), firing("Odd")))
	require.Eventually(t, func() bool {
		return metric(t, d.Metrics(), "retryledger_alerts_external_refused_total") == 1
	}, patience, 5*time.Millisecond)
	require.Eventually(t, func() bool { return d.Status().Alertmanagers[0].Pending == 0 }, patience, 5*time.Millisecond)
	require.Contains(t, d.Status().Alertmanagers[0].LastError, "not now")
	require.Zero(t, metric(t, d.Metrics(), "retryledger_alerts_external_sent_total"), "what was refused was not taken")
	require.NoError(t, d.Shutdown(t.Context()))
	require.EqualValues(t, 1, g.requests.Load())
}

func TestExternalShutdownTellsWhatIsLeft(t *testing.T) {
	t.Parallel()
	hook := newWebhook(t)
	d := push(t, componenttest.NewNopHost(), time.Minute, client(alertmanagerURL(t, hook)))
	alerts := named("A", 3*maxBatch)
	require.NoError(t, d.Put(t.Context(), alerts...))
	require.NoError(t, d.Shutdown(t.Context()))
	require.ErrorIs(t, d.Put(t.Context(), alerts[0]), ErrNotRunning)
	require.ErrorIs(t, d.Reload(t.Context()), ErrNotRunning)
	require.Error(t, d.Start(t.Context(), nil))
	for _, a := range alerts {
		hook.waitFor(t, "firing "+a.Labels["alertname"])
	}
}

func TestExternalShutdownIsBoundedByItsContext(t *testing.T) {
	t.Parallel()
	hangs := newWebhook(t)
	hangs.answer(func(r *http.Request) int { <-r.Context().Done(); return http.StatusOK })
	d := push(t, componenttest.NewNopHost(), time.Minute, client(hangs.URL))
	require.NoError(t, d.Put(t.Context(), firing("Stuck")))
	require.Eventually(t, func() bool { return len(hangs.notifications()) > 0 }, patience, 5*time.Millisecond)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, d.Shutdown(ctx), context.DeadlineExceeded)
}

func TestExternalTLSAndWhoItIs(t *testing.T) {
	t.Parallel()
	hook := newWebhook(t)
	to := alertmanagerURL(t, hook)
	basic, bearer := component.MustNewIDWithName("basicauth", "am"), component.MustNewIDWithName("bearertokenauth", "am")
	bf, tf := basicauthextension.NewFactory(), bearertokenauthextension.NewFactory()
	bc, ok := bf.CreateDefaultConfig().(*basicauthextension.Config)
	require.True(t, ok)
	bc.ClientAuth = &basicauthextension.ClientAuthSettings{Username: "ledger", Password: "SECRET-basic"}
	tc, ok := tf.CreateDefaultConfig().(*bearertokenauthextension.Config)
	require.True(t, ok)
	tc.BearerToken = "SECRET-bearer"
	extensions := map[component.ID]component.Component{}
	for id, create := range map[component.ID]func() (extension.Extension, error){
		basic: func() (extension.Extension, error) {
			return bf.Create(t.Context(), extensiontest.NewNopSettings(bf.Type()), bc)
		},
		bearer: func() (extension.Extension, error) {
			return tf.Create(t.Context(), extensiontest.NewNopSettings(tf.Type()), tc)
		},
	} {
		e, err := create()
		require.NoError(t, err)
		require.NoError(t, e.Start(t.Context(), componenttest.NewNopHost()))
		t.Cleanup(func() { require.NoError(t, e.Shutdown(context.Background())) })
		extensions[id] = e
	}
	with := &host{componenttest.NewNopHost(), extensions}
	for name, id := range map[string]component.ID{"Basic": basic, "Bearer": bearer} {
		g := newGate(t, to, true)
		g.check = func(r *http.Request) bool {
			user, password, _ := r.BasicAuth()
			return name == "Basic" && user == "ledger" && password == "SECRET-basic" ||
				name == "Bearer" && r.Header.Get("Authorization") == "Bearer SECRET-bearer"
		}
		c := client(g.URL)
		c.Auth = configoptional.Some(configauth.Config{AuthenticatorID: id})
		c.TLS = configtls.ClientConfig{InsecureSkipVerify: true}
		d := push(t, with, time.Minute, c)
		require.NoError(t, d.Put(t.Context(), firing(name)))
		hook.waitFor(t, "firing "+name)

		c.TLS = configtls.ClientConfig{} // the certificate is not one that is trusted
		distrusts := push(t, with, time.Minute, c)
		require.NoError(t, distrusts.Put(t.Context(), firing("Never")))
		require.Eventually(t, func() bool { return distrusts.Status().Alertmanagers[0].LastError != "" }, patience, 5*time.Millisecond)
		require.Contains(t, distrusts.Status().Alertmanagers[0].LastError, "certificate")
	}
	require.Zero(t, hook.told()["firing Never"])

	c := client("https://localhost")
	c.Auth = configoptional.Some(configauth.Config{AuthenticatorID: component.MustNewID("nowhere")})
	cfg := NewDefaultConfig()
	cfg.External.Alertmanagers = []confighttp.ClientConfig{c}
	d, err := New(&cfg, settings(t, ""))
	require.NoError(t, err)
	require.ErrorContains(t, d.Start(t.Context(), with), "make a client for Alertmanager https://localhost")
}

func TestExternalDue(t *testing.T) {
	t.Parallel()
	cfg := NewDefaultConfig()
	cfg.External.Alertmanagers = []confighttp.ClientConfig{client("http://localhost")}
	e, err := newExternal(cfg.External, settings(t, ""))
	require.NoError(t, err)
	s, now := e.senders[0], time.Unix(1_700_000_000, 0)
	hold := func(name string, endsAt time.Time) *sent {
		a := alert.New(model.Alert{Labels: model.LabelSet{"alertname": model.LabelValue(name)}, StartsAt: now, EndsAt: endsAt}, now, false)
		held := &sent{alert: wire(a), version: 1, told: map[*sender]told{}}
		e.alerts[a.Fingerprint()] = held
		return held
	}
	tell := func(at time.Time) int {
		out, _ := e.due(s, at)
		e.know(s, out, at)
		return len(out.held)
	}

	long := hold("Long", now.Add(Lease))
	require.Equal(t, 1, tell(now))
	require.Zero(t, tell(now))
	_, next := e.due(s, now)
	require.Equal(t, now.Add(time.Minute), next, "again after the interval")
	long.alert.EndsAt = now.Add(20 * time.Second)
	require.Equal(t, 1, tell(now.Add(time.Minute)), "and once more, as it ended")
	require.Zero(t, tell(now.Add(time.Minute+time.Second)))

	clear(e.alerts)
	hold("Short", now.Add(20*time.Second))
	require.Equal(t, 1, tell(now))
	_, next = e.due(s, now)
	require.Equal(t, now.Add(10*time.Second), next, "in time before it expires there")

	clear(e.alerts)
	gone := hold("Gone", now)
	require.Equal(t, 1, tell(now.Add(forgetAfter)))
	require.Zero(t, tell(now.Add(forgetAfter+1)))
	require.Empty(t, e.alerts)
	gone.version++

	for i := range maxBatch + 1 {
		hold(string(rune('A'+i)), now.Add(Lease))
	}
	require.Equal(t, maxBatch+1, e.pending(s))
	out, next := e.due(s, now)
	require.Len(t, out.held, maxBatch)
	require.Equal(t, now, next, "there is more")
	for _, a := range e.alerts {
		a.version++ // changes while the request is under way
	}
	e.know(s, out, now)
	require.Equal(t, maxBatch+1, e.pending(s), "a change that came meanwhile is told too")
}

func TestExternalBounds(t *testing.T) {
	t.Parallel()
	g := newGate(t, "http://127.0.0.1:1", false)
	g.status.Store(http.StatusServiceUnavailable)
	d := push(t, componenttest.NewNopHost(), time.Minute, client(g.URL))
	e, ok := d.(*external)
	require.True(t, ok)
	e.mu.Lock()
	for i := range model.Fingerprint(maxAlerts - 1) {
		e.alerts[i+1] = &sent{alert: wireAlert{EndsAt: time.Now().Add(time.Hour)}}
	}
	e.mu.Unlock()
	require.NoError(t, d.Put(t.Context(), firing("One")))
	require.ErrorIs(t, d.Put(t.Context(), firing("One"), firing("Two")), ErrTooManyAlerts)
	long := firing("LongAgo")
	long.StartsAt, long.EndsAt = time.Now().Add(-time.Hour), time.Now().Add(-forgetAfter-time.Second)
	require.NoError(t, d.Put(t.Context(), long), "nobody needs to be told of it")
	require.ErrorIs(t, d.Put(t.Context(), Alert{}), ErrInvalidAlert)
	e.mu.Lock()
	clear(e.alerts)
	e.mu.Unlock()
}
