package dashboards

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"github.com/stretchr/testify/require"

	"github.com/retryledger/retryledger/internal/storetest"
	"github.com/retryledger/retryledger/schema"
)

// breakerHistory is what breakers did: of a provider with a plain name, and of those with
// odd ones. The first one's story begins before every range that tests look at.
func breakerHistory() []schema.BreakerTransition {
	at := func(minutes int) time.Time { return storetest.Day.Add(time.Duration(minutes) * time.Minute) }
	list := []schema.BreakerTransition{
		{At: at(-90), Provider: "openai", From: "closed", To: "open", Why: "30 of 120 requests in 30s ended in a server error", Requests: 120, ServerErrors: 30},
		{At: at(-80), Provider: "openai", From: "open", To: "half_open", Why: "the cool-down of 10s is over"},
		{At: at(30), Provider: "openai", From: "half_open", To: "open", Why: "1 of 1 probes failed", Requests: 1, ServerErrors: 1},
		{At: at(50), Provider: "openai", From: "open", To: "half_open", Why: "the cool-down of 20s is over"},
		{At: at(51), Provider: "openai", From: "half_open", To: "closed", Why: "5 probes succeeded", Requests: 5},
		{At: at(60), Provider: "anthropic", From: "closed", To: "open", Why: "20 of 40 requests in 30s ended in a server error; 4 were throttled", Requests: 40, ServerErrors: 20, Throttled: 4},
		{At: at(24 * 60), Provider: "openai", From: "closed", To: "open", Why: "after every range"},
	}
	for _, name := range odd["provider"] {
		list = append(list, schema.BreakerTransition{At: at(10), Provider: strings.ReplaceAll(name, notStated, ""), From: "closed", To: "open", Why: name, Requests: 20, ServerErrors: 10})
	}
	return list
}

// insertHistory writes what breakers did, twice, as two collectors on one store do.
func insertHistory(t testing.TB, store storetest.Store) {
	t.Helper()
	ctx, conn := context.Background(), store.Conn
	for _, table := range []string{"alert_samples", "self_metrics"} {
		require.NoError(t, conn.Exec(ctx, "ALTER TABLE "+table+" REMOVE TTL"), "the captures' day is longer ago than these are kept")
	}
	require.NoError(t, schema.InsertSpans(ctx, conn, rand.Uint64, append(moreSpans(), store.Spans...)))
	require.NoError(t, schema.InsertLedger(ctx, conn, []schema.LedgerRow{{
		TraceID: lonelyTrace, State: schema.StateUnattributed, Spans: 2, UnattributedSpans: 2, Version: schema.LedgerVersion{InsertedUs: 1},
		FirstEndNs: storetest.Day.UnixNano(), LastEndNs: storetest.Day.UnixNano(), LastReceivedNs: storetest.Day.UnixNano(),
	}}))
	insertDelays(t, conn)
	insertMetrics(t, conn)
	for _, writer := range []string{"one", "other"} {
		breakers := breakerHistory()
		for i := range breakers {
			breakers[i].Writer = writer
		}
		require.NoError(t, schema.InsertBreakerTransitions(ctx, conn, breakers))
		transitions := alertTransitions()
		for i := range transitions {
			transitions[i].Writer = writer
		}
		require.NoError(t, schema.InsertAlertTransitions(ctx, conn, transitions))
		require.NoError(t, schema.InsertAlertSamples(ctx, conn, alertSamples()))
	}
}

// alertTransitions is what alerts did: of services that exist, of odd names, and of none.
func alertTransitions() []schema.AlertTransition {
	at := func(minutes int) time.Time { return storetest.Day.Add(time.Duration(minutes) * time.Minute) }
	var list []schema.AlertTransition
	fires := func(minutes int, rule, severity string, group schema.AlertGroup, from, to, reason string, numerator, denominator int64) {
		list = append(list, schema.AlertTransition{
			At: at(minutes), Rule: rule, Group: group, From: from, To: to, Reason: reason, Labels: map[string]string{"severity": severity},
			Numerator: numerator, Denominator: denominator, Threshold: 0.02, MinSamples: 50, TopError: "RateLimitError 429", TopErrorCount: numerator, Runs: []string{"a", "b"},
		})
	}
	checkout, billing := schema.AlertGroup{Service: "checkout", Step: "resolve"}, schema.AlertGroup{Service: "billing", Version: "2"}
	fires(-70, "step_errors", "page", checkout, "inactive", "firing", "breach", 5, 100)
	fires(45, "step_errors", "page", checkout, "firing", "resolved", "recovered", 1, 100)
	fires(70, "step_errors", "page", checkout, "resolved", "pending", "breach", 6, 100)
	fires(71, "step_errors", "page", checkout, "pending", "firing", "breach", 7, 100)
	fires(-65, "canary_errors", "page", billing, "inactive", "pending", "breach", 2, 100)
	fires(-64, "canary_errors", "page", billing, "pending", "inactive", "recovered", 0, 100)
	fires(90, "fallbacks", "ticket", billing, "inactive", "pending", "breach", 3, 100)
	fires(100, "provider_server_errors", "breaker", schema.AlertGroup{Provider: "openai"}, "inactive", "firing", "breach", 20, 100)
	fires(110, "ingest_stalled", "page", schema.AlertGroup{}, "inactive", "firing", "breach", 0, 0)
	fires(24*60, "step_errors", "page", checkout, "firing", "resolved", "rule_removed", 0, 0)
	for n := range 2 {
		name := func(of string) string { return strings.ReplaceAll(odd[of][n], notStated, "") }
		fires(20, "odd", name("step"), schema.AlertGroup{
			Service: name("service"), Environment: name("environment"), Version: name("version"), Step: name("step"), Provider: name("provider"),
		}, "inactive", "firing", "breach", 9, 90)
	}
	return list
}

// alertSamples are evaluations every ten seconds, the last ones of too few to be judged.
func alertSamples() []schema.AlertSample {
	var list []schema.AlertSample
	for i := range 700 {
		n := int64(i)
		add := func(rule string, group schema.AlertGroup, numerator int64, threshold float64) {
			list = append(list, schema.AlertSample{
				Instant: storetest.Day.Add(time.Duration(10*i) * time.Second), Rule: rule, Group: group, WindowS: 120,
				Numerator: numerator, Denominator: 700 - n, Threshold: threshold, MinSamples: 50, State: "inactive",
			})
		}
		for k := range int64(8) {
			add("step_errors", schema.AlertGroup{Service: []string{"checkout", "billing"}[k%2], Step: string(rune('a' + k))}, n*(k+1)%40, 0.02)
		}
		for k := range 2 {
			add("step_errors", schema.AlertGroup{Service: strings.ReplaceAll(odd["service"][k], notStated, ""), Step: strings.ReplaceAll(odd["step"][k], notStated, "")}, n%50, 0.02+float64(n%2)/100)
			add("canary_errors", schema.AlertGroup{Service: odd["service"][k], Version: odd["version"][k]}, n%30, 0.01)
		}
		add("canary_errors", schema.AlertGroup{Service: "checkout", Version: "1"}, n%9, 0.01)
		add("provider_server_errors", schema.AlertGroup{Provider: strings.ReplaceAll(odd["provider"][i%2], notStated, "")}, n%100, 0.15)
		add("provider_server_errors", schema.AlertGroup{}, n%11, 0.15)
	}
	return list
}

// lonelyTrace is a trace of no run.
var lonelyTrace = schema.TraceID{201}

// moreSpans are two of no run, and one of each odd run.
func moreSpans() []schema.Span {
	span := schema.Span{TraceID: lonelyTrace, SpanID: schema.SpanID{1}, Service: "checkout", Dialect: "plain", EndNs: storetest.Day.UnixNano(), ReceivedNs: storetest.Day.UnixNano()}
	other := span
	other.SpanID, other.Dialect = schema.SpanID{2}, ""
	list := []schema.Span{span, other}
	for n := range 2 {
		run := oddRow(n)
		span.TraceID, span.Service, span.Environment, span.Version = run.TraceID, run.Runs[0].Service, run.Runs[0].Environment, run.Runs[0].Version
		list = append(list, span)
	}
	return list
}

// delays are rows of the ledger: when they were written, and how long after their spans.
func delays() map[time.Time][]time.Duration {
	found := map[time.Time][]time.Duration{}
	for i := range 40 {
		at := storetest.Day.Add(time.Duration(i*i) * time.Second)
		found[at] = append(found[at], time.Duration(i)*100*time.Millisecond, time.Duration(40-i)*time.Second)
	}
	return found
}

func insertDelays(t testing.TB, conn driver.Conn) {
	t.Helper()
	n := 0
	for at, list := range delays() {
		for _, delay := range list {
			n++
			require.NoError(t, conn.Exec(context.Background(), "INSERT INTO ledger (trace_id, version, state, last_received_ns, written_at) VALUES (?, 1, 'attributed', ?, fromUnixTimestamp64Micro(?, 'UTC'))",
				fmt.Sprintf("delayed %08d", n), at.Add(-delay).UnixNano(), at.UnixMicro()))
		}
	}
}

// timedMetric is what one collector measured until an instant.
type timedMetric struct {
	at time.Time
	schema.SelfMetric
}

// selfMetrics are those of two collectors, one of which ends early.
func selfMetrics() []timedMetric {
	var list []timedMetric
	for i := range 140 {
		at := storetest.Day.Add(-time.Hour + time.Duration(i+1)*10*time.Minute - 10*time.Second)
		for w, writer := range []string{"one/1", "other's/2"} {
			if w == 1 && i > 100 {
				continue
			}
			n := float64(i + w)
			for name, values := range map[string][3]float64{
				schema.MetricSpansAccepted: {10, 1000 + n, 200}, schema.MetricSpansRefused: {1, n, n}, schema.MetricDeadLetters: {1, float64(w), 1},
				schema.MetricInsertRetries: {2, 2, 1}, schema.MetricJournalWaiting: {1, 5000 * n, 5000 * n}, schema.MetricJournalAge: {1, n / 10, n / 10},
				schema.MetricEvaluationTime: {10, n / 100, n / 500},
			} {
				list = append(list, timedMetric{at, schema.SelfMetric{Writer: writer, Name: name, Times: uint64(values[0]), Total: values[1], Largest: values[2]}})
			}
		}
	}
	return list
}

func insertMetrics(t testing.TB, conn driver.Conn) {
	t.Helper()
	batch, err := conn.PrepareBatch(context.Background(), "INSERT INTO self_metrics (at, writer, name, times, total, largest)")
	require.NoError(t, err)
	for _, v := range selfMetrics() {
		require.NoError(t, batch.Append(v.at, v.Writer, v.Name, v.Times, v.Total, v.Largest))
	}
	require.NoError(t, batch.Send())
}
