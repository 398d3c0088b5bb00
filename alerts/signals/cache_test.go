package signals_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/retryledger/retryledger/alerts/signals"
	"github.com/retryledger/retryledger/schema"
)

// start is the store's time, in seconds, at which the tests begin.
const start = int64(1_800_000_000)

// everything keeps all signals for one window.
func everything(window time.Duration) signals.Keep {
	keep := make(signals.Keep)
	for _, s := range signals.All() {
		keep[s] = window
	}
	return keep
}

// value matches one value.
type value string

func (v value) Matches(s string) bool { return s == string(v) }

// counted is the oracle: it counts the events one by one, with nanoseconds, and knows
// nothing of caches and seconds.
func counted(rows map[schema.TraceID]schema.LedgerRow, q signals.Query) []signals.Sample {
	groups := make(map[string]*signals.Sample)
	for _, row := range rows {
		for _, e := range signals.Events(&row) {
			inWindow := e.AtNs > q.ToNs-q.WindowNs && e.AtNs <= q.ToNs
			waits := e.Unsettled && e.AtNs+10*second > q.ToNs
			if e.Signal != q.Signal || !inWindow || waits {
				continue
			}
			if service := q.Where[signals.Service]; service != nil && !service.Matches(e.Labels.Service) {
				continue
			}
			var labels signals.Labels
			if slices.Contains(q.GroupBy, signals.Service) {
				labels.Service = e.Labels.Service
			}
			if slices.Contains(q.GroupBy, signals.Step) {
				labels.Step = e.Labels.Step
			}
			if slices.Contains(q.GroupBy, signals.Provider) {
				labels.Provider = e.Labels.Provider
			}
			key := fmt.Sprintf("%+v", labels)
			if groups[key] == nil {
				groups[key] = &signals.Sample{Labels: labels}
			}
			groups[key].Numerator += e.Numerator
			groups[key].Denominator += e.Denominator
		}
	}
	var samples []signals.Sample
	for _, s := range groups {
		samples = append(samples, *s)
	}
	slices.SortFunc(samples, func(a, b signals.Sample) int { return a.Labels.Compare(b.Labels) })
	return samples
}

func window(t require.TestingT, c *signals.Cache, q signals.Query) []signals.Sample {
	samples, err := c.Window(nil, q) //nolint:staticcheck // the cache waits for nothing
	require.NoError(t, err)
	if len(samples) == 0 {
		return nil
	}
	return samples
}

// questions are queries at an instant that differ in all that a rule may say.
func questions(toS int64) []signals.Query {
	var list []signals.Query
	for i, s := range signals.All() {
		q := signals.Query{Signal: s, ToNs: toS * second, WindowNs: []int64{1, 2, 30, 45}[i%4] * second}
		list = append(list, q)
		q.WindowNs = 45 * second
		q.GroupBy = []signals.Dimension{signals.Service, signals.Step, signals.Provider}
		list = append(list, q)
		q.WindowNs, q.GroupBy = 33*second, []signals.Dimension{signals.Step}
		q.Where = map[signals.Dimension]signals.Matcher{signals.Service: value("a")}
		list = append(list, q)
	}
	return list
}

// At every second of a random stream of rows, in which rows of a few traces replace
// each other in any order, come twice, late and with clocks that are wrong, a cache that
// was there from the beginning, one that was filled anew from the current rows at
// some moment, and plain counting over the current rows say the same.
func TestCacheIsPlainCounting(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		old := signals.NewCache(everything(45*time.Second), signals.Limits{})
		now := start
		old.Advance(now * 1e6)
		var young *signals.Cache
		current := make(map[schema.TraceID]schema.LedgerRow)
		var written []schema.LedgerRow
		put := func(row schema.LedgerRow) {
			old.Put(schema.BriefOf(&row))
			if young != nil {
				young.Put(schema.BriefOf(&row))
			}
			if have, ok := current[row.TraceID]; !ok || row.Version.Compare(have.Version) > 0 {
				current[row.TraceID] = row
			}
		}
		for step := range rapid.IntRange(1, 12).Draw(t, "seconds") {
			now += rapid.SampledFrom([]int64{1, 1, 1, 2, 7, 31, 64, 200}).Draw(t, "pause")
			old.Advance(now * 1e6)
			if young != nil {
				young.Advance(now * 1e6)
			}
			for range rapid.IntRange(0, 5).Draw(t, "writes") {
				if len(written) > 0 && rapid.IntRange(0, 3).Draw(t, "again") == 0 {
					put(rapid.SampledFrom(written).Draw(t, "duplicate"))
					continue
				}
				// What it holds was received when its version says, give or take the clocks.
				made := now - rapid.Int64Range(0, 20).Draw(t, "delay")
				row := drawnRow(t, made*second+rapid.Int64Range(-5*second, 5*second).Draw(t, "clock"), 60*second)
				row.TraceID = schema.TraceID{rapid.ByteRange(0, 4).Draw(t, "trace")}
				row.Version = schema.LedgerVersion{InsertedUs: made * 1e6, Spans: uint32(len(written))}
				written = append(written, row)
				put(row)
			}
			if rapid.IntRange(0, 3).Draw(t, "restart") == 0 {
				young = signals.NewCache(everything(45*time.Second), signals.Limits{})
				young.Advance(now * 1e6)
				for _, row := range current {
					young.Put(schema.BriefOf(&row))
				}
			}
			to := now - rapid.SampledFrom([]int64{0, 0, 1, 15}).Draw(t, "late by")
			for _, q := range questions(to) {
				want := counted(current, q)
				require.Equal(t, want, window(t, old, q), "second %d: %+v", step, q)
				if young != nil {
					require.Equal(t, want, window(t, young, q), "second %d, after a restart: %+v", step, q)
				}
			}
		}
	})
}

// oneVisit is a row of one visit of step x, which ended at ns.
func oneVisit(trace byte, version, ns int64, outcome string, settled bool) schema.LedgerRow {
	return schema.LedgerRow{
		TraceID: schema.TraceID{trace}, Version: schema.LedgerVersion{InsertedUs: version}, LastReceivedNs: ns + second,
		Operations: []schema.OperationRow{{Step: "x", Grain: "execution", Outcome: outcome, EndNs: ns, Settled: settled}},
	}
}

func failures(t *testing.T, c *signals.Cache, toS, windowS int64) [2]int64 {
	t.Helper()
	samples := window(t, c, signals.Query{Signal: signals.OperationErrorRatio, ToNs: toS * second, WindowNs: windowS * second})
	if len(samples) == 0 {
		return [2]int64{}
	}
	require.Len(t, samples, 1)
	return [2]int64{samples[0].Numerator, samples[0].Denominator}
}

func TestWindowsBeginAfterTheirBeginning(t *testing.T) {
	c := signals.NewCache(everything(time.Minute), signals.Limits{})
	c.Advance((start + 10) * 1e6)
	for i, ns := range []int64{start * second, start*second + 1, (start + 1) * second, (start+1)*second + 1} {
		row := oneVisit(byte(i), 1, ns, "handled", true)
		c.Put(schema.BriefOf(&row))
	}
	assert.Equal(t, [2]int64{1, 1}, failures(t, c, start, 1), "a window holds its end")
	assert.Equal(t, [2]int64{2, 2}, failures(t, c, start+1, 1), "and not its beginning")
	assert.Equal(t, [2]int64{1, 1}, failures(t, c, start+2, 1))
	assert.Equal(t, [2]int64{4, 4}, failures(t, c, start+2, 3))
}

func TestFailureCountsOnceItIsSettled(t *testing.T) {
	c := signals.NewCache(everything(time.Minute), signals.Limits{})
	c.Advance((start + 30) * 1e6)
	unsettled := oneVisit(1, 1, start*second, "failed_without_retry", false)
	c.Put(schema.BriefOf(&unsettled))
	assert.Equal(t, [2]int64{}, failures(t, c, start+9, 60))
	assert.Equal(t, [2]int64{1, 1}, failures(t, c, start+10, 60), "no attempt followed for ten seconds")
	settled := oneVisit(1, 2, start*second, "failed_without_retry", true)
	c.Put(schema.BriefOf(&settled))
	assert.Equal(t, [2]int64{1, 1}, failures(t, c, start, 60), "its place in time has not moved")
	retried := oneVisit(1, 3, (start+5)*second, "succeeded_after_retry", true)
	c.Put(schema.BriefOf(&retried))
	assert.Equal(t, [2]int64{}, failures(t, c, start+4, 60))
	assert.Equal(t, [2]int64{0, 1}, failures(t, c, start+5, 60), "a retry made up for it")
	c.Put(schema.BriefOf(&settled))
	assert.Equal(t, [2]int64{0, 1}, failures(t, c, start+5, 60), "what comes late and knows less changes nothing")
}

func TestCacheRefusesWhatItDoesNotHold(t *testing.T) {
	c := signals.NewCache(signals.Keep{signals.OperationErrorRatio: time.Minute}, signals.Limits{})
	c.Advance(start * 1e6)
	for why, q := range map[string]signals.Query{
		"no rule":            {Signal: signals.RetryRatio, ToNs: start * second, WindowNs: second},
		"longer than 1m0s":   {Signal: signals.OperationErrorRatio, ToNs: start * second, WindowNs: 61 * second},
		"whole seconds":      {Signal: signals.OperationErrorRatio, ToNs: start*second + 1, WindowNs: second},
		"one second at":      {Signal: signals.OperationErrorRatio, ToNs: start * second},
		"what is older is g": {Signal: signals.OperationErrorRatio, ToNs: (start - 61) * second, WindowNs: 60 * second},
	} {
		_, err := c.Window(t.Context(), q)
		var refused *signals.NotHeldError
		require.ErrorAs(t, err, &refused, why)
		assert.ErrorContains(t, err, why)
	}
}

func TestCacheForgetsWhatIsOld(t *testing.T) {
	c := signals.NewCache(everything(time.Minute), signals.Limits{})
	for i := range int64(1000) {
		c.Advance((start + i) * 1e6)
		row := oneVisit(byte(i), i+1, (start+i)*second, "handled", true)
		row.TraceID[1] = byte(i >> 8)
		row.Operations[0].Step = fmt.Sprint("step ", i)
		c.Put(schema.BriefOf(&row))
	}
	stats := c.Stats()
	assert.LessOrEqual(t, stats.Traces, 125)
	assert.LessOrEqual(t, stats.Series, 160)
	assert.Equal(t, [2]int64{60, 60}, failures(t, c, start+999, 60))
	c.Advance((start + 100_000) * 1e6)
	assert.Equal(t, signals.Stats{}, c.Stats())
}

func TestManyTracesCostTheWindowAndNotTheTruth(t *testing.T) {
	c := signals.NewCache(everything(time.Minute), signals.Limits{Traces: 100})
	for i := range int64(60) {
		c.Advance((start + i) * 1e6)
		for j := range int64(10) {
			row := oneVisit(byte(i), 1, (start+i)*second, "handled", true)
			row.TraceID[1] = byte(j)
			c.Put(schema.BriefOf(&row))
		}
	}
	stats := c.Stats()
	assert.LessOrEqual(t, stats.Traces, 100)
	assert.Equal(t, [2]int64{90, 90}, failures(t, c, start+59, 9))
	_, err := c.Window(t.Context(), signals.Query{Signal: signals.OperationErrorRatio, ToNs: (start + 59) * second, WindowNs: 30 * second})
	require.ErrorContains(t, err, "had to be forgotten")
	again := oneVisit(2, 9, (start+2)*second, "succeeded_first_try", true) // of a trace that was forgotten
	c.Put(schema.BriefOf(&again))
	assert.Equal(t, [2]int64{80, 80}, failures(t, c, start+59, 8))
}

func TestManyLabelsAreCountedAsOther(t *testing.T) {
	c := signals.NewCache(signals.Keep{signals.OperationErrorRatio: time.Minute}, signals.Limits{Series: 10})
	c.Advance(start * 1e6)
	row := func(i int, outcome string) *schema.LedgerRow {
		r := oneVisit(byte(i), 1, start*second, outcome, true)
		r.TraceID[1] = byte(i >> 8)
		r.Operations[0].Step = fmt.Sprint("step ", i)
		r.Runs = []schema.RunRow{{Service: fmt.Sprint("service ", i/100)}}
		return &r
	}
	for i := range 5000 {
		c.Put(schema.BriefOf(row(i, "handled")))
	}
	stats := c.Stats()
	assert.LessOrEqual(t, stats.Series, 22)
	assert.EqualValues(t, 4990, stats.Folded)
	assert.Equal(t, [2]int64{5000, 5000}, failures(t, c, start, 60), "the sums stay true")
	samples := window(t, c, signals.Query{
		Signal: signals.OperationErrorRatio, ToNs: start * second, WindowNs: 60 * second, GroupBy: []signals.Dimension{signals.Service, signals.Step},
		Where: map[signals.Dimension]signals.Matcher{signals.Service: value("service 0")},
	})
	require.Len(t, samples, 11)
	assert.Equal(t, signals.Sample{Labels: signals.Labels{Service: "service 0", Step: signals.Other}, Numerator: 90, Denominator: 90}, samples[0])
	for i := range 5000 {
		r := row(i, "succeeded_first_try")
		r.Version.InsertedUs = 2
		c.Put(schema.BriefOf(r))
	}
	assert.Equal(t, [2]int64{0, 5000}, failures(t, c, start, 60))
}
