package schema

import (
	"context"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
)

// What collectors measure of themselves.
const (
	MetricSpansAccepted     = "spans_accepted"        // spans that were acknowledged
	MetricSpansRefused      = "spans_refused"         // spans whose senders are told to try again
	MetricRowsInserted      = "rows_inserted"         // rows that the store has taken
	MetricInsertRetries     = "insert_retries"        // inserts that failed and are tried again
	MetricDeadLetters       = "dead_letters"          // spans, rows and stretches of the journal that could not be kept
	MetricInsertTime        = "insert_s"              // seconds of an insert, failed ones included
	MetricJournalWaiting    = "journal_waiting_bytes" // what is in the journal and not yet in the store
	MetricJournalAge        = "journal_waiting_s"     // seconds that the oldest of it has waited
	MetricAttributionDelay  = "attribution_delay_s"   // seconds from the receipt of a trace's last span to the row of the ledger that knows it
	MetricEvaluationTime    = "evaluation_s"          // seconds of an evaluation of all alert rules
	MetricEvaluationsFailed = "evaluations_failed"    // evaluations that could not read the signals
)

// SelfMetric is what one collector measured of one thing in some seconds.
type SelfMetric struct {
	Writer         string // which collector
	Name           string // one of the constants
	Times          uint64
	Total, Largest float64
}

var selfMetricColumns = []column[SelfMetric]{
	field("writer", func(v *SelfMetric) *string { return &v.Writer }),
	field("name", func(v *SelfMetric) *string { return &v.Name }),
	field("times", func(v *SelfMetric) *uint64 { return &v.Times }),
	field("total", func(v *SelfMetric) *float64 { return &v.Total }),
	field("largest", func(v *SelfMetric) *float64 { return &v.Largest }),
}

// InsertSelfMetrics writes what was measured until now, by the store's clock.
func InsertSelfMetrics(ctx context.Context, conn driver.Conn, rows []SelfMetric) error {
	return insert(ctx, conn, "self_metrics", selfMetricColumns, rows)
}
