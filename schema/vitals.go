package schema

import (
	"context"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
)

// What collectors measure of themselves.
const (
	VitalSpansAccepted     = "spans_accepted"        // spans that were acknowledged
	VitalSpansRefused      = "spans_refused"         // spans whose senders are told to try again
	VitalRowsInserted      = "rows_inserted"         // rows that the store has taken
	VitalInsertRetries     = "insert_retries"        // inserts that failed and are tried again
	VitalDeadLetters       = "dead_letters"          // spans, rows and stretches of the journal that could not be kept
	VitalInsertTime        = "insert_s"              // seconds of an insert, failed ones included
	VitalJournalWaiting    = "journal_waiting_bytes" // what is in the journal and not yet in the store
	VitalJournalAge        = "journal_waiting_s"     // seconds that the oldest of it has waited
	VitalEvaluationTime    = "evaluation_s"          // seconds of an evaluation of all alert rules
	VitalEvaluationsFailed = "evaluations_failed"    // evaluations that could not read the signals
)

// Vital is what one collector measured of one thing in some seconds.
type Vital struct {
	Writer         string // which collector
	Name           string // one of the constants
	Times          uint64
	Total, Largest float64
}

var vitalColumns = []column[Vital]{
	field("writer", func(v *Vital) *string { return &v.Writer }),
	field("name", func(v *Vital) *string { return &v.Name }),
	field("times", func(v *Vital) *uint64 { return &v.Times }),
	field("total", func(v *Vital) *float64 { return &v.Total }),
	field("largest", func(v *Vital) *float64 { return &v.Largest }),
}

// InsertVitals writes what was measured until now, by the store's clock.
func InsertVitals(ctx context.Context, conn driver.Conn, rows []Vital) error {
	return insert(ctx, conn, "collector_vitals", vitalColumns, rows)
}
