package api

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/config/confighttp"
	"go.opentelemetry.io/collector/config/configoptional"
	"go.opentelemetry.io/collector/extension/extensiontest"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/retryledger/retryledger/analysis/answer"
	"github.com/retryledger/retryledger/analysis/attribution"
	"github.com/retryledger/retryledger/analysis/ledger"
	"github.com/retryledger/retryledger/ingest/dialect"
	"github.com/retryledger/retryledger/internal/capturetest"
	"github.com/retryledger/retryledger/internal/engine/enginetest"
	"github.com/retryledger/retryledger/internal/otlpfile"
	"github.com/retryledger/retryledger/schema"
)

// storeExtension is a store whose connection is there from the start, or never.
type storeExtension struct {
	component.StartFunc
	component.ShutdownFunc
	conn driver.Conn
}

func (s *storeExtension) Conn(ctx context.Context) (driver.Conn, error) {
	if s.conn == nil {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return s.conn, nil
}

type host struct {
	extensions map[component.ID]component.Component
}

func (h host) GetExtensions() map[component.ID]component.Component { return h.extensions }

// start starts the API on a free port of loopback over a store.
func start(t *testing.T, store component.Component, change func(*Config)) *server {
	t.Helper()
	config := defaults()
	config.ServerConfig.NetAddr.Endpoint = "127.0.0.1:0"
	if change != nil {
		change(config)
	}
	extension, err := NewFactory().Create(t.Context(), extensiontest.NewNopSettings(componentType), config)
	require.NoError(t, err)
	s, ok := extension.(*server)
	require.True(t, ok)
	require.NoError(t, s.Start(t.Context(), host{map[component.ID]component.Component{config.Store: store}}))
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		require.NoError(t, s.Shutdown(context.Background()))
	})
	return s
}

// ask gets a path and decodes the answer, which must be JSON whatever its status.
func ask(t *testing.T, s *server, path string, out any, change ...func(*http.Request)) int {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+s.addr.String()+path, http.NoBody)
	require.NoError(t, err)
	for _, c := range change {
		c(request)
	}
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	require.Equal(t, "application/json", response.Header.Get("Content-Type"), path)
	require.Empty(t, response.Header.Values("Access-Control-Allow-Origin"))
	require.NoError(t, json.Unmarshal(body, out), string(body))
	return response.StatusCode
}

// filled is a store with the account of some captures, which all belong to one service.
func filled(t *testing.T, cells ...string) (*storeExtension, attribution.Ledger) {
	t.Helper()
	db := enginetest.Database(t)
	require.NoError(t, schema.Migrate(t.Context(), db.Conn, schema.MigrateOptions{}))
	var spans []schema.Span
	for _, cell := range cells {
		for _, name := range capturetest.One(t, cell).Files {
			file, err := os.Open(name)
			require.NoError(t, err)
			_, err = otlpfile.Read(file, 0, func(td ptrace.Traces) error {
				rows, _ := dialect.Normalise(td, time.Now().UnixNano())
				spans = append(spans, rows...)
				return nil
			})
			require.NoError(t, err)
			require.NoError(t, file.Close())
		}
	}
	opts := attribution.Defaults()
	at := map[schema.TraceID]int{}
	var traces []schema.LedgerRow
	for i := range spans {
		opts.AtNs = max(opts.AtNs, spans[i].EndNs)
		n, ok := at[spans[i].TraceID]
		if !ok {
			n = len(traces)
			at[spans[i].TraceID] = n
			traces = append(traces, schema.LedgerRow{TraceID: spans[i].TraceID, FirstEndNs: spans[i].EndNs, Version: schema.LedgerVersion{InsertedUs: 1}})
		}
		traces[n].Spans++
		traces[n].FirstEndNs = min(traces[n].FirstEndNs, spans[i].EndNs)
		traces[n].LastEndNs = max(traces[n].LastEndNs, spans[i].EndNs)
		traces[n].LastReceivedNs = max(traces[n].LastReceivedNs, spans[i].ReceivedNs)
	}
	account := attribution.Account(spans, opts)
	rows, err := ledger.Rows(account, traces)
	require.NoError(t, err)
	require.NoError(t, schema.InsertLedger(t.Context(), db.Conn, rows))
	return &storeExtension{conn: db.Conn}, account
}

func TestRoutesAnswerTheLedger(t *testing.T) {
	store, account := filled(t, "py-openinference/n13_seven_of_three", "openinference/c_nested_9", "openinference/i2_incomplete")
	s := start(t, store, func(c *Config) { c.MaxResults = 2 })

	var top answer.Top
	require.Equal(t, http.StatusOK, ask(t, s, "/api/v1/top?limit=1", &top))
	require.Equal(t, answer.TopOf(account, answer.Filter{Limit: 1}), top)
	require.Equal(t, http.StatusOK, ask(t, s, "/api/v1/top?limit=0", &top))
	require.Len(t, top.Steps, 2, "max_results is above every limit")
	require.Equal(t, http.StatusOK, ask(t, s, "/api/v1/top?since=1h&until=1m&service=nobody", &top))
	require.Empty(t, top.Steps)
	require.WithinDuration(t, time.Now().Add(-time.Hour), *top.Since, time.Minute)

	var runs answer.Runs
	require.Equal(t, http.StatusOK, ask(t, s, "/api/v1/runs?over_budget=true", &runs))
	require.Len(t, runs.Runs, 2)
	require.Equal(t, http.StatusOK, ask(t, s, "/api/v1/runs?completion=incomplete&quarantined=true", &runs))
	require.Len(t, runs.Runs, 1)

	want := account.Runs[0]
	var run answer.Run
	require.Equal(t, http.StatusOK, ask(t, s, "/api/v1/runs/"+want.RunID, &run))
	var same answer.Run
	encoded, err := json.Marshal(answer.RunOf(want))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(encoded, &same))
	require.Equal(t, same, run)

	var status answer.Status
	require.Equal(t, http.StatusOK, ask(t, s, "/api/v1/status", &status))
	require.Equal(t, int64(3), status.Runs)
	require.NotEmpty(t, status.Version)
}

// A question that is too large for its quota says which one, and leaves the store to others.
func TestQuotas(t *testing.T) {
	store, account := filled(t, "py-openinference/n13_seven_of_three", "openinference/c_nested_9", "openinference/i2_incomplete")
	for name, c := range map[string]struct {
		tiny   func(*Config)
		status int
		says   string
	}{
		"rows": {func(c *Config) { c.MaxQueryRows = 1 }, http.StatusUnprocessableEntity,
			"the question would read more than 1 rows of the store; ask for a shorter window, or raise max_query_rows"},
		"memory": {func(c *Config) { c.MaxQueryMemoryMiB = 1 }, http.StatusUnprocessableEntity,
			"the question needs more than 1 MiB of the store's memory; ask for a shorter window, or raise max_query_memory_mib"},
		"time": {func(c *Config) { c.QueryTimeout = time.Millisecond }, http.StatusGatewayTimeout, "ask for a shorter window, or raise query_timeout"},
	} {
		s := start(t, store, c.tiny)
		for _, path := range []string{"/api/v1/top", "/api/v1/runs"} {
			var failure answer.Failure
			require.Equal(t, c.status, ask(t, s, path, &failure), "%s %s: %s", name, path, failure.Error)
			require.Contains(t, failure.Error, c.says, name)
		}
	}
	require.NoError(t, store.conn.Exec(t.Context(), "INSERT INTO schema_migrations (version, name) VALUES (0, 'written all the same')"))
	var top answer.Top
	require.Equal(t, http.StatusOK, ask(t, start(t, store, nil), "/api/v1/top", &top))
	require.Equal(t, answer.TopOf(account, answer.Filter{}), top)
}

// The socket of the store may say so before the context does.
func TestAQuestionThatTookTooLong(t *testing.T) {
	t.Parallel()
	s := newServer(defaults(), extensiontest.NewNopSettings(componentType))
	for _, err := range []error{context.DeadlineExceeded, os.ErrDeadlineExceeded} {
		w := httptest.NewRecorder()
		s.fail(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/api/v1/top", http.NoBody), fmt.Errorf("read: %w", err))
		require.Equal(t, http.StatusGatewayTimeout, w.Code, err)
		require.Contains(t, w.Body.String(), "raise query_timeout")
	}
}

func TestListsAreNeverNull(t *testing.T) {
	store, _ := filled(t, "plain-go/retrygo_step")
	s := start(t, store, nil)
	for _, path := range []string{"/api/v1/top", "/api/v1/top?service=nobody", "/api/v1/runs", "/api/v1/runs?service=nobody"} {
		var lists map[string]any
		require.Equal(t, http.StatusOK, ask(t, s, path, &lists))
		requireNulls(t, path, lists, "since", "until", "transport", "call", "node", "orchestrator", "worker")
	}
}

// requireNulls fails where anything but the named members is null.
func requireNulls(t *testing.T, at string, value any, allowed ...string) {
	t.Helper()
	switch v := value.(type) {
	case map[string]any:
		for key, member := range v {
			if member == nil {
				require.Contains(t, allowed, key, at)
			}
			requireNulls(t, at+"."+key, member, allowed...)
		}
	case []any:
		for _, element := range v {
			requireNulls(t, at+"[]", element, allowed...)
		}
	}
}

func TestMistakesOfTheAsker(t *testing.T) {
	store, _ := filled(t, "openinference/j4_resume_after_failure", "openinference/c_nested_9")
	s := start(t, store, nil)
	for path, want := range map[string]struct {
		status int
		says   string
	}{
		"/api/v1/top?since=yesterday":                {400, "parameter since"},
		"/api/v1/top?until=-3h":                      {400, "parameter until"},
		"/api/v1/top?since=1h&until=2h":              {400, "before until"},
		"/api/v1/top?limit=-1":                       {400, "parameter limit"},
		"/api/v1/top?limit=many":                     {400, "parameter limit"},
		"/api/v1/top?servce=x":                       {400, `no parameter "servce"`},
		"/api/v1/runs?completion=done":               {400, "parameter completion"},
		"/api/v1/runs?quarantined=perhaps":           {400, "parameter quarantined"},
		"/api/v1/status?since=1h":                    {400, "it takes none"},
		"/api/v1/runs/nobody":                        {404, `no run has the id "nobody"`},
		"/api/v1/runs/%27%3B%20DROP%20TABLE%20spans": {404, "no run has the id"},
		"/api/v1/steps":                              {404, "there is nothing here"},
		"/":                                          {404, "/api/v1/top"},
	} {
		var failure answer.Failure
		require.Equal(t, want.status, ask(t, s, path, &failure), path)
		require.Contains(t, failure.Error, want.says, path)
	}
	var failure answer.Failure
	require.Equal(t, http.StatusMethodNotAllowed, ask(t, s, "/api/v1/top", &failure, func(r *http.Request) { r.Method = http.MethodPost }))
	require.Equal(t, "ask with GET", failure.Error)
}

func TestAnAmbiguousIDListsItsRuns(t *testing.T) {
	store, account := filled(t, "openinference/l8_many_runs")
	s := start(t, store, nil)
	prefixes := map[string]int{}
	for _, run := range account.Runs {
		prefixes[run.RunID[:1]]++
	}
	for prefix, n := range prefixes {
		if n < 2 {
			continue
		}
		var failure answer.Failure
		require.Equal(t, http.StatusConflict, ask(t, s, "/api/v1/runs/"+prefix, &failure))
		require.Contains(t, failure.Error, "fits")
		require.GreaterOrEqual(t, len(failure.Candidates), 2)
		for _, candidate := range failure.Candidates {
			var run answer.Run
			require.Equal(t, http.StatusOK, ask(t, s, "/api/v1/runs/"+candidate.TraceID, &run))
		}
		return
	}
	t.Fatal("no two runs begin alike: choose another capture")
}

// A web page may let a name of its own point to this machine, or send its reader's
// browser here; neither reads the ledger.
func TestWebPagesCannotRead(t *testing.T) {
	store, _ := filled(t, "plain-go/retrygo_step")
	s := start(t, store, func(c *Config) { c.AllowedHosts = []string{"ledger.example.com"} })
	under := func(name string) func(*http.Request) { return func(r *http.Request) { r.Host = name } }
	var failure answer.Failure
	require.Equal(t, http.StatusForbidden, ask(t, s, "/api/v1/top", &failure, under("rebound.example.net:4320")))
	require.Contains(t, failure.Error, "allowed_hosts")
	require.Equal(t, http.StatusForbidden, ask(t, s, "/api/v1/top", &failure, func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") }))
	fetched := func(mode, dest string) func(*http.Request) {
		return func(r *http.Request) {
			r.Header.Set("Sec-Fetch-Site", "cross-site")
			r.Header.Set("Sec-Fetch-Mode", mode)
			r.Header.Set("Sec-Fetch-Dest", dest)
		}
	}
	require.Equal(t, http.StatusForbidden, ask(t, s, "/api/v1/top", &failure, fetched("navigate", "iframe")))
	require.Equal(t, http.StatusForbidden, ask(t, s, "/api/v1/top", &failure, fetched("no-cors", "image")))
	var followed answer.Top
	require.Equal(t, http.StatusOK, ask(t, s, "/api/v1/top", &followed, fetched("navigate", "document")), "a person may follow a link from a chat")
	for _, name := range []string{"localhost:1", "127.0.0.1", "[::1]:9", "ledger.example.com:4320", "LEDGER.example.com"} {
		var top answer.Top
		require.Equal(t, http.StatusOK, ask(t, s, "/api/v1/top", &top, under(name)), name)
	}
}

// Nor does one change anything, whichever headers its browser knows.
func TestWebPagesCannotChange(t *testing.T) {
	plain := start(t, &storeExtension{}, func(c *Config) { c.AllowedHosts = []string{"ledger.example.com"} })
	shared := start(t, &storeExtension{}, func(c *Config) {
		c.ServerConfig.CORS = configoptional.Some(confighttp.CORSConfig{AllowedOrigins: []string{"https://*.example.org", "https://one.example.net"}})
	})
	own, of := plain.addr.String(), shared.addr.String()
	for _, c := range []struct {
		s              *server
		method, origin string
		refused        bool
	}{
		{plain, http.MethodPost, "", false}, // no browser
		{plain, http.MethodPost, "http://" + own, false},
		{plain, http.MethodDelete, "https://LEDGER.example.com", false},
		{plain, http.MethodPost, "https://ledger.example.com:8443", false},
		{plain, http.MethodPost, "https://evil.example.net", true},
		{plain, http.MethodDelete, "https://evil.example.net", true},
		{plain, http.MethodPut, "https://evil.example.net", true},
		{plain, http.MethodPost, "http://127.0.0.1:1", true}, // another program's page on this machine
		{plain, http.MethodPost, "https://ledger.example.com.evil.example.net", true},
		{plain, http.MethodPost, "null", true}, // a frame in a sandbox, a file
		{plain, http.MethodPost, "://", true},
		{plain, http.MethodGet, "https://evil.example.net", false},
		{shared, http.MethodPost, "https://a.example.org", false},
		{shared, http.MethodPost, "https://one.example.net", false},
		{shared, http.MethodPost, "http://" + of, false},
		{shared, http.MethodPost, "https://one.example.net.evil.example", true},
		{shared, http.MethodPost, "https://evil.example.net", true},
	} {
		request, err := http.NewRequestWithContext(t.Context(), c.method, "http://"+c.s.addr.String()+"/nothing", http.NoBody)
		require.NoError(t, err)
		if c.origin != "" {
			request.Header.Set("Origin", c.origin)
		}
		response, err := http.DefaultClient.Do(request)
		require.NoError(t, err)
		body, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		require.Equal(t, c.refused, response.StatusCode == http.StatusForbidden, "%s from %q: %s", c.method, c.origin, body)
		if c.refused {
			require.Contains(t, string(body), "may not change anything")
		}
	}
}

func TestAStoreThatIsNotReady(t *testing.T) {
	s := start(t, &storeExtension{}, func(c *Config) { c.QueryTimeout, c.MaxConcurrentQueries = 50*time.Millisecond, 1 })
	var failure answer.Failure
	require.Equal(t, http.StatusServiceUnavailable, ask(t, s, "/api/v1/top", &failure))
	require.Contains(t, failure.Error, "the store is not ready")

	done, err := s.Turn(t.Context()) // as if another question were being worked on, of another extension
	require.NoError(t, err)
	require.Equal(t, http.StatusServiceUnavailable, ask(t, s, "/api/v1/top", &failure))
	require.Contains(t, failure.Error, "too many questions")
	_, err = s.Turn(t.Context())
	require.ErrorContains(t, err, "too many questions")
	done()
	require.Equal(t, http.StatusServiceUnavailable, ask(t, s, "/api/v1/top", &failure))
	require.Contains(t, failure.Error, "the store is not ready")
}

func TestAStoreThatFailsIsNotTheAskersMistake(t *testing.T) {
	db := enginetest.Database(t) // without the schema
	s := start(t, &storeExtension{conn: db.Conn}, nil)
	var failure answer.Failure
	require.Equal(t, http.StatusBadGateway, ask(t, s, "/api/v1/top", &failure))
	require.NotContains(t, strings.ToLower(failure.Error), "select", "the store's words stay in the log")
}

func TestStartNamesWhatIsWrong(t *testing.T) {
	t.Parallel()
	config := defaults()
	s := newServer(config, extensiontest.NewNopSettings(componentType))
	require.Equal(t, []component.ID{config.Store}, s.Dependencies())
	require.NoError(t, s.Shutdown(t.Context()), "a component that never started stops")
	require.ErrorContains(t, s.Start(t.Context(), componenttest.NewNopHost()), "no extension retryledger_store")
	other := struct {
		component.StartFunc
		component.ShutdownFunc
	}{}
	require.ErrorContains(t, s.Start(t.Context(), host{map[component.ID]component.Component{config.Store: &other}}), "is no store")

	var listen net.ListenConfig
	taken, err := listen.Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { require.NoError(t, taken.Close()) }()
	config.ServerConfig.NetAddr.Endpoint = taken.Addr().String()
	err = s.Start(t.Context(), host{map[component.ID]component.Component{config.Store: &storeExtension{}}})
	require.ErrorContains(t, err, "is taken, perhaps by another collector")
}
