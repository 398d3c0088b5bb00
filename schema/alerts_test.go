package schema

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestAlertSamplesStandOnce(t *testing.T) {
	db := migrated(t)
	start := time.Now().UTC().Truncate(time.Second)
	last, err := LastAlertInstant(t.Context(), db.Conn)
	require.NoError(t, err)
	assert.True(t, last.IsZero())
	sample := func(second int, step string) AlertSample {
		return AlertSample{
			Instant: start.Add(time.Duration(second) * time.Second), Rule: "step_errors", Signal: "operation_error_ratio", Group: AlertGroup{Service: "shop", Step: step},
			WindowS: 120, Numerator: int64(second), Denominator: 100, Threshold: 0.02, State: "pending",
		}
	}
	for second := range 5 {
		batch := []AlertSample{sample(second, "rank"), sample(second, "resolve")}
		for range 2 {
			require.NoError(t, InsertAlertSamples(t.Context(), db.Conn, batch))
		}
	}
	read := func(f AlertFilter) []AlertSample {
		found, err := AlertSamples(t.Context(), db.Conn, f)
		require.NoError(t, err)
		return found
	}
	assert.Len(t, read(AlertFilter{}), 10)
	assert.Equal(t, []AlertSample{sample(2, "rank"), sample(3, "rank")},
		read(AlertFilter{Since: start.Add(2 * time.Second), Until: start.Add(4 * time.Second), Rule: "step_errors", Labels: map[string]string{"step": "rank"}}))
	assert.Equal(t, []AlertSample{sample(4, "rank")}, read(AlertFilter{Limit: 1, Labels: map[string]string{"step": "rank", "service": "shop"}}), "the latest")
	assert.Empty(t, read(AlertFilter{Rule: "other"}))
	last, err = LastAlertInstant(t.Context(), db.Conn)
	require.NoError(t, err)
	assert.Equal(t, start.Add(4*time.Second), last)
	var value float64
	require.NoError(t, db.Conn.QueryRow(t.Context(), "SELECT value FROM alert_samples FINAL WHERE numerator = 3 AND step = 'rank'").Scan(&value))
	assert.InDelta(t, 0.03, value, 1e-12)
	_, err = AlertSamples(t.Context(), db.Conn, AlertFilter{Labels: map[string]string{"x' OR 1": ""}})
	require.ErrorContains(t, err, "use one of service, ")
}

func TestTheLaterWriteOfATransitionWins(t *testing.T) {
	db := migrated(t)
	at := time.Now().UTC().Truncate(time.Second)
	pending := AlertTransition{
		At: at, Rule: "step_errors", Signal: "operation_error_ratio", Group: AlertGroup{Service: "shop", Step: "rank"}, Labels: map[string]string{"severity": "page"},
		From: "inactive", To: "pending", Since: at, WindowS: 120, Numerator: 3, Denominator: 100, Threshold: 0.02, MinSamples: 50, Runs: []string{}, Writer: "a",
	}
	firing := pending
	firing.At, firing.From, firing.To, firing.StartsAt, firing.Fingerprint, firing.Reason = at.Add(time.Second), "pending", "firing", at.Add(time.Second), 1<<63+7, "breach"
	stall := AlertTransition{At: at, Rule: "evaluation_stalled", From: "inactive", To: "firing", LastedMs: 31_000, Labels: map[string]string{}, Runs: []string{}}
	require.NoError(t, InsertAlertTransitions(t.Context(), db.Conn, []AlertTransition{pending, firing, stall}))
	explained := firing
	explained.TopError, explained.TopErrorCount, explained.Runs, explained.Writer = "RateLimitError 429", 5, []string{"run-1", "run-2"}, "b"
	require.NoError(t, InsertAlertTransitions(t.Context(), db.Conn, []AlertTransition{explained}))
	found, err := AlertTransitions(t.Context(), db.Conn, AlertFilter{Rule: "step_errors", Since: at})
	require.NoError(t, err)
	assert.Equal(t, []AlertTransition{pending, explained}, found)
	found, err = AlertTransitions(t.Context(), db.Conn, AlertFilter{Rule: "evaluation_stalled", Labels: map[string]string{"step": ""}})
	require.NoError(t, err)
	assert.Equal(t, []AlertTransition{stall}, found)
}

func TestAlertSamplesEndWithTheirMonth(t *testing.T) {
	db := migrated(t)
	for _, age := range []int{31, 29} {
		s := AlertSample{Instant: time.Now().UTC().AddDate(0, 0, -age).Truncate(time.Second), Rule: fmt.Sprint(age, " days")}
		require.NoError(t, InsertAlertSamples(t.Context(), db.Conn, []AlertSample{s}))
	}
	require.NoError(t, db.Conn.Exec(t.Context(), "OPTIMIZE TABLE alert_samples FINAL"))
	found, err := AlertSamples(t.Context(), db.Conn, AlertFilter{})
	require.NoError(t, err)
	require.Len(t, found, 1)
	assert.Equal(t, "29 days", found[0].Rule)
}

// BenchmarkAlertSamplesTrickle is the insert of one evaluation's samples, as every
// second makes one.
func BenchmarkAlertSamplesTrickle(b *testing.B) {
	db := migrated(b)
	at := time.Now().UTC().Truncate(time.Second)
	samples := make([]AlertSample, 300)
	for b.Loop() {
		at = at.Add(time.Second)
		for i := range samples {
			samples[i] = AlertSample{
				Instant: at, Rule: fmt.Sprint("rule ", i/60), Signal: "operation_error_ratio", Group: AlertGroup{Service: "shop", Step: fmt.Sprint("step ", i%60)},
				WindowS: 120, Numerator: int64(i % 7), Denominator: 1000 + int64(i), Threshold: 0.02, State: "inactive",
			}
		}
		require.NoError(b, InsertAlertSamples(b.Context(), db.Conn, samples))
	}
}

// The history of alerts is filtered by values, whatever they say.
func TestAlertFiltersAreValues(t *testing.T) {
	db := migrated(t)
	at := time.Now().UTC().Truncate(time.Second)
	hostile := []string{"plain", "'", `\`, `\'`, `'\`, `\N`, `\t`, "\t", "\n", "\x00", "' OR 1=1 --", `\' OR 1=1 --`, "'; DROP TABLE alert_samples; --", "?", "$1", "{x:String}", "%", "--", "/*", "日本", `"`, "`"}
	var samples []AlertSample
	for _, text := range hostile {
		samples = append(samples, AlertSample{Instant: at, Rule: text, Signal: "operation_error_ratio", Group: AlertGroup{Service: text, Step: text, Provider: text}, WindowS: 60, State: "pending"})
	}
	require.NoError(t, InsertAlertSamples(t.Context(), db.Conn, samples))
	for i, text := range hostile {
		for _, f := range []AlertFilter{{Rule: text}, {Labels: map[string]string{"service": text, "step": text}}, {Group: &samples[i].Group}} {
			found, err := AlertSamples(t.Context(), db.Conn, f)
			require.NoError(t, err, "%q", text)
			assert.Equal(t, samples[i:i+1], found, "%q", text)
		}
		found, err := AlertSamples(t.Context(), db.Conn, AlertFilter{Rule: text + "nobody's"})
		require.NoError(t, err, "%q", text)
		assert.Empty(t, found, "%q", text)
	}
}
