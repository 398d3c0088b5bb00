package gates

import (
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryledger/retryledger/alerts/signals"
	"github.com/retryledger/retryledger/analysis/answer"
)

var update = flag.Bool("update", false, "write the golden files")

func serve(reader signals.Reader) http.Handler {
	now := func() time.Time { return noon }
	return NewHandler(HandlerSettings{Reader: reader, UpTo: now, Now: now, MaxWindow: time.Hour, StaleAfter: DefaultStaleAfter})
}

// request asks a handler and decodes its answer.
func request(t *testing.T, h http.Handler, method, target, body string, into any) int {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, target, strings.NewReader(body)))
	require.Equal(t, "application/json", w.Header().Get("Content-Type"))
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), into), w.Body.String())
	return w.Code
}

// releases are one for each cause that counts can have.
var releases = []struct {
	cause    Cause
	query    string
	events   events
	decision Decision
}{
	{CauseNoData, "", nil, Inconclusive},
	{CauseSampleTooSmall, "", events{}.add("v2", 1, 12, time.Minute), Inconclusive},
	{CauseWithinThreshold, "", events{}.add("v2", 1, 412, time.Minute), Pass},
	{CauseAboveThreshold, "", events{}.add("v2", 9, 412, time.Minute), Fail},
	{CauseBaselineTooSmall, "&baseline=v1", events{}.add("v2", 1, 412, time.Minute).add("v1", 0, 12, time.Minute), Inconclusive},
	{CauseNotWorse, "&baseline=v1", events{}.add("v2", 2, 1000, time.Minute).add("v1", 20, 9000, time.Minute), Pass},
	{CauseWorse, "&baseline=v1", events{}.add("v2", 9, 412, time.Minute).add("v1", 3, 4000, time.Minute), Fail},
	{CauseUnclear, "&baseline=v1", events{}.add("v2", 1, 150, time.Minute).add("v1", 3, 4000, time.Minute), Inconclusive},
	{CauseAboveLikeBaseline, "&baseline=v1", events{}.add("v2", 3000, 10_000, time.Minute).add("v1", 3100, 10_000, time.Minute), Inconclusive},
}

func TestAnswersAsJSON(t *testing.T) {
	for _, release := range releases {
		t.Run(string(release.cause), func(t *testing.T) {
			var got Answer
			require.Equal(t, http.StatusOK, request(t, serve(release.events), http.MethodGet, Path+"?service=checkout&version=v2"+release.query, "", &got))
			assert.Equal(t, release.decision, got.Decision)
			assert.Equal(t, release.cause, got.Cause)
			encoded, err := json.MarshalIndent(got, "", "  ")
			require.NoError(t, err)
			golden(t, string(release.cause)+".json", string(encoded)+"\n")
		})
	}
}

// golden compares with testdata/name; -update writes it.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(got), 0o600))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err, "run the test with -update to write it")
	require.Equal(t, string(want), got)
}

func TestParametersAreUnderstood(t *testing.T) {
	e := events{}.add("v2", 2, 100, 4*time.Minute)
	for query, want := range map[string]Decision{
		"":                          Inconclusive, // 3 minutes
		"&window=5m":                Fail,
		"&window=300s":              Fail,
		"&window=5m&threshold=0.02": Pass,
		"&window=5m&threshold=0.02&min_samples=7": Pass,
		"&window=5m&threshold=2%25":               Pass,
		"&window=5m&threshold=1.99+%25":           Fail,
		"&window=5m&min_samples=101":              Inconclusive,
		"&window=5m&signal=attempt_error_ratio":   Inconclusive,
		"&window=5m&environment=staging":          Inconclusive,
		"&window=5m&environment=production":       Fail,
		"&window=5m&threshold=0&min_samples=2":    Fail,
		"&window=5m&baseline=v1":                  Fail,
		"&window=1h":                              Fail,
	} {
		var got Answer
		require.Equal(t, http.StatusOK, request(t, serve(e), http.MethodGet, Path+"?service=checkout&version=v2"+query, "", &got), query)
		assert.Equal(t, want, got.Decision, "%s: %s", query, got.Reason)
	}
	var got Answer
	request(t, serve(e), http.MethodGet, Path+"?service=checkout&version=v2&threshold=0.05&margin=0.002", "", &got)
	assert.InDelta(t, 0.05, got.Threshold, 1e-12)
	assert.InDelta(t, 0.002, got.Margin, 1e-12)
}

func TestMistakesAreAnsweredWithARemedy(t *testing.T) {
	for query, want := range map[string]string{
		"version=v2":       "parameter service: name the service",
		"service=checkout": "parameter version: name the version",
		"service=checkout&version=v2&baseline=v2":          "parameter baseline: it is the version itself",
		"service=checkout&version=v2&versions=v1":          `no parameter "versions"; it takes service, version, baseline`,
		"service=checkout&version=v2&version=v3":           "parameter version: write it once",
		"service=checkout&version=v2&signal=errors":        "parameter signal: write one of operation_error_ratio, ",
		"service=checkout&version=v2&signal=retry_ratio":   "parameter signal: write one of",
		"service=checkout&version=v2&window=3":             "parameter window: write whole seconds up to 1h,",
		"service=checkout&version=v2&window=1500ms":        "parameter window",
		"service=checkout&version=v2&window=61m":           "parameter window",
		"service=checkout&version=v2&window=-3m":           "parameter window",
		"service=checkout&version=v2&threshold=1":          "parameter threshold: write a ratio from 0 to below 1, such as 0.01, or a percentage",
		"service=checkout&version=v2&threshold=100%25":     "parameter threshold",
		"service=checkout&version=v2&threshold=2":          "parameter threshold",
		"service=checkout&version=v2&threshold=NaN":        "parameter threshold",
		"service=checkout&version=v2&margin=-1":            "parameter margin",
		"service=checkout&version=v2&min_samples=1":        "parameter min_samples: write a whole number, at least 2",
		"service=checkout&version=v2&min_samples=many":     "parameter min_samples",
		"service=checkout&version=v2&accept=maybe":         "parameter accept: write the decisions",
		"service=checkout&version=v2&accept=pass,,fail":    "parameter accept",
		"service=checkout&version=v2&environment=a&nano=1": `no parameter "nano"`,
	} {
		var failure answer.Failure
		assert.Equal(t, http.StatusBadRequest, request(t, serve(events{}), http.MethodGet, Path+"?"+query, "", &failure), query)
		assert.Contains(t, failure.Error, want, query)
	}
	var failure answer.Failure
	assert.Equal(t, http.StatusMethodNotAllowed, request(t, serve(events{}), http.MethodDelete, Path, "", &failure))
	assert.Contains(t, failure.Error, "ask with GET")
	for body, want := range map[string]string{
		"{":                           "write the body as JSON",
		`{"metadata":{"service":1}}`:  "write the body as JSON",
		strings.Repeat(" ", 65<<10):   "larger than 65536 bytes",
		`{"metadata":{"version":""}}`: "parameter service",
		`{"metadata":{"service":"checkout","version":"v2","cmd":"hey"}}`: `no parameter "cmd"`,
	} {
		assert.Equal(t, http.StatusBadRequest, request(t, serve(events{}), http.MethodPost, Path, body, &failure))
		assert.Contains(t, failure.Error, want)
	}
	assert.Equal(t, http.StatusBadRequest, request(t, serve(events{}), http.MethodPost, Path+"?service=a", `{"metadata":{"service":"b"}}`, &failure))
	assert.Contains(t, failure.Error, "in the address and in the metadata")
}

func TestAWebhookIsAnsweredByTheStatus(t *testing.T) {
	for _, release := range releases {
		for accept, statuses := range map[string]map[Decision]int{
			"":                               {Pass: 200, Fail: 412, Inconclusive: 412},
			`,"accept":"pass"`:               {Pass: 200, Fail: 412, Inconclusive: 412},
			`,"accept":"pass, inconclusive"`: {Pass: 200, Fail: 412, Inconclusive: 200},
			`,"accept":"fail"`:               {Pass: 412, Fail: 200, Inconclusive: 412},
		} {
			body := fmt.Sprintf(`{"name":"checkout","namespace":"shop","phase":"Progressing","checksum":"1","metadata":{"service":"checkout","version":"v2"%s}}`, accept)
			var got Answer
			query := strings.TrimPrefix(release.query, "&")
			status := request(t, serve(release.events), http.MethodPost, Path+"?"+query, body, &got)
			assert.Equal(t, release.decision, got.Decision)
			assert.Equal(t, statuses[release.decision], status, "%s %s", release.cause, accept)
		}
	}
}

func TestAGetIsAnsweredByTheStatusWhereAsked(t *testing.T) {
	var got Answer
	assert.Equal(t, http.StatusPreconditionFailed, request(t, serve(events{}), http.MethodGet, Path+"?service=checkout&version=v2&accept=pass", "", &got))
	assert.Equal(t, CauseNoData, got.Cause)
	assert.Equal(t, http.StatusOK, request(t, serve(broken{}), http.MethodGet, Path+"?service=checkout&version=v2", "", &got))
	assert.Equal(t, CauseUnavailable, got.Cause, "an outage of the store is no error of the canary")
}
