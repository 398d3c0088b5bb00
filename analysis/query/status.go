package query

import (
	"context"
	"math"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"github.com/retryledger/retryledger/analysis/answer"
)

const (
	ledgerStatusStatement = `
SELECT sum(spans), count(), sum(unattributed_spans), countIf(state NOT IN ('attributed', 'unattributed')),
    min(first_end_ns), max(last_end_ns), max(last_received_ns)
FROM ledger FINAL`

	runStatusStatement = `SELECT completion, count() FROM runs GROUP BY completion`

	// How long the spans of the last minutes of inserts took from receipt to store, and
	// the oldest insert that attribution has not come to.
	lagStatement = `
WITH
    ifNull((SELECT max(watermark) FROM attribution_progress), toDateTime64(0, 6, 'UTC')) AS attributed,
    ifNull((SELECT max(inserted_at) FROM spans), toDateTime64(0, 6, 'UTC')) AS newest
SELECT toUnixTimestamp64Micro(attributed),
    ifNull((SELECT quantile(0.99)(greatest(0, toUnixTimestamp64Micro(inserted_at) * 1000 - received_ns)) / 1e6
        FROM spans WHERE inserted_at > newest - INTERVAL 5 MINUTE), 0) AS ingest_ms,
    if(newest > attributed, (toUnixTimestamp64Micro(now64(6, 'UTC')) -
        toUnixTimestamp64Micro(ifNull((SELECT min(inserted_at) FROM spans WHERE inserted_at > attributed), newest))) / 1e3, 0) AS ledger_ms`
)

// Status says what the store holds and how far attribution has come.
func (a Asker) Status(ctx context.Context) (answer.Status, error) {
	status := answer.Status{Completion: map[string]int{}}
	err := a.read(ctx, "what the ledger holds", ledgerStatusStatement, nil, func(rows driver.Rows) error {
		var spans, traces, unattributed, failed uint64
		var oldest, newest, received int64
		if err := rows.Scan(&spans, &traces, &unattributed, &failed, &oldest, &newest, &received); err != nil {
			return err //nolint:wrapcheck // read wraps it
		}
		status.Spans, status.Traces = int64(spans), int64(traces)
		status.UnattributedSpans, status.FailedTraces = int64(unattributed), int64(failed)
		if traces > 0 {
			status.OldestEnd, status.NewestEnd, status.LastReceived = instantOf(oldest), instantOf(newest), instantOf(received)
		}
		return nil
	})
	if err != nil {
		return answer.Status{}, err
	}
	err = a.read(ctx, "the completion of runs", runStatusStatement, nil, func(rows driver.Rows) error {
		var completion string
		var n uint64
		if err := rows.Scan(&completion, &n); err != nil {
			return err //nolint:wrapcheck // read wraps it
		}
		status.Completion[completion] = int(n)
		status.Runs += int64(n)
		return nil
	})
	if err != nil {
		return answer.Status{}, err
	}
	err = a.read(ctx, "how far attribution has come", lagStatement, nil, func(rows driver.Rows) error {
		var attributedUs int64
		var ingestMs, ledgerMs float64
		if err := rows.Scan(&attributedUs, &ingestMs, &ledgerMs); err != nil {
			return err //nolint:wrapcheck // read wraps it
		}
		if attributedUs > 0 {
			status.AttributedThrough = instantOf(attributedUs * 1000)
		}
		if !math.IsNaN(ingestMs) { // over nothing
			status.IngestLagMs = ingestMs
		}
		status.LedgerLagMs = max(0, ledgerMs)
		return nil
	})
	return status, err
}

func instantOf(ns int64) *time.Time {
	t := time.Unix(0, ns).UTC()
	return &t
}
