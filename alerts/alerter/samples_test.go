package alerter

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryledger/retryledger/alerts/signals"
	"github.com/retryledger/retryledger/schema"
)

// documented is the query of docs/signals.md for a signal.
func documented(t *testing.T, signal string) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/signals.md")
	require.NoError(t, err)
	found := regexp.MustCompile("(?s)\n### " + signal + "\n.*?```sql\n(.*?)```").FindSubmatch(text)
	require.NotNil(t, found, signal)
	return string(found[1])
}

// What the default pack's samples say equals the documented query over the views at
// their instant.
func TestSamplesAreThoseOfTheViews(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	c := b.start("", "")
	random := rand.New(rand.NewPCG(1, 2))
	b.step(1, c)
	compared := map[string]int{}
	for range 6 {
		for range 1 + random.IntN(3) {
			w := work{service: []string{"shop", "bank"}[random.IntN(2)], visits: random.IntN(40), requests: random.IntN(20)}
			w.failed, w.errs = random.IntN(w.visits+1), random.IntN(w.requests+1)
			b.insert(w)
		}
		b.step(1, c)
		instant := b.now().Truncate(time.Second)
		require.NoError(t, c.archive.flush(t.Context(), b.real))
		samples, err := schema.AlertSamples(t.Context(), b.real, schema.AlertFilter{Since: instant})
		require.NoError(t, err)
		for _, rule := range c.inForce().Rules() {
			got := []string{}
			for _, s := range samples {
				if s.Rule == rule.Name {
					assert.Equal(t, instant.UTC(), s.Instant)
					got = append(got, fmt.Sprintf("%v %d of %d", s.Group, s.Numerator, s.Denominator))
				}
			}
			slices.Sort(got)
			if len(rule.Signal.Dimensions()) == 0 {
				continue // the evaluation itself
			}
			columns := map[signals.Dimension]string{}
			for _, d := range signals.Dimensions() {
				columns[d] = "''"
			}
			for _, d := range rule.GroupBy {
				columns[d] = "toString(" + string(d) + ")"
			}
			where := "true"
			if rule.Name == "canary_errors" {
				where = "version != ''"
			}
			rows, err := b.real.Query(t.Context(), fmt.Sprintf(
				"SELECT %s AS g1, %s AS g2, %s AS g3, %s AS g4, %s AS g5, toInt64(sum(numerator)), toInt64(sum(denominator)) AS d FROM (%s) WHERE %s GROUP BY ALL HAVING d > 0",
				columns[signals.Service], columns[signals.Environment], columns[signals.Version], columns[signals.Step], columns[signals.Provider],
				documented(t, string(rule.Signal)), where),
				clickhouse.Named("to", instant.UnixNano()), clickhouse.Named("window", int64(rule.Window)))
			require.NoError(t, err)
			want := []string{}
			for rows.Next() {
				var g schema.AlertGroup
				var numerator, denominator int64
				require.NoError(t, rows.Scan(&g.Service, &g.Environment, &g.Version, &g.Step, &g.Provider, &numerator, &denominator))
				want = append(want, fmt.Sprintf("%v %d of %d", g, numerator, denominator))
			}
			require.NoError(t, rows.Err())
			require.NoError(t, rows.Close())
			slices.Sort(want)
			assert.Equal(t, want, got, "%s at %s", rule.Name, instant)
			compared[rule.Name] += len(got)
		}
	}
	for _, name := range []string{"step_errors", "canary_errors", "provider_server_errors", "retries_high", "incomplete_runs"} {
		assert.NotZero(t, compared[name], name)
	}
}

// The end of a collector writes what waits, and what was being written when it came.
func TestSamplesUntilTheEnd(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	c := b.start("", testRules)
	b.insert(work{service: "shop", visits: 100, failed: 1})
	for range 7 {
		ctx, cancel := context.WithCancel(t.Context())
		b.set(b.now().Add(time.Second))
		c.pass(ctx, b.now())
		cancel() // whatever is under way
	}
	c.watch.end(t.Context())
	samples, err := schema.AlertSamples(t.Context(), b.real, schema.AlertFilter{Rule: "failing"})
	require.NoError(t, err)
	assert.Len(t, samples, 7)
	require.NoError(t, c.archive.wait())
	assert.Zero(t, c.archive.lost)
}
