package schema

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
)

// AlertGroup is what an alert is about; a dimension is empty where the rule does not
// group by it, or the spans do not state it.
type AlertGroup struct {
	Service     string `json:"service,omitempty"`
	Environment string `json:"environment,omitempty"`
	Version     string `json:"version,omitempty"`
	Step        string `json:"step,omitempty"`
	Provider    string `json:"provider,omitempty"`
}

// AlertSample is one rule's numbers on one group at one evaluation.
type AlertSample struct {
	Instant                time.Time // whole seconds
	Rule, Signal           string
	Group                  AlertGroup
	WindowS                uint32 // seconds
	Numerator, Denominator int64
	Threshold              float64 // a ratio
	MinSamples             int64   // with a smaller Denominator the rule does not judge
	State                  string  // of the alert after the evaluation
}

// AlertTransition is one change of one alert's state. Zero times are "never"; times
// are kept to the millisecond. Rule, group, instant and state that it came to tell it from
// all others.
type AlertTransition struct {
	At            time.Time         `json:"at"`
	Rule          string            `json:"rule"`
	Signal        string            `json:"signal"`
	Group         AlertGroup        `json:"group"`
	Fingerprint   uint64            `json:"fingerprint"` // of Labels, as Alertmanager has it
	Labels        map[string]string `json:"labels"`      // of the alert
	From          string            `json:"from"`
	To            string            `json:"to"`
	Reason        string            `json:"reason"`
	Since         time.Time         `json:"since,omitzero"`     // when the breach began
	StartsAt      time.Time         `json:"starts_at,omitzero"` // when it fired
	WindowS       uint32            `json:"window_s"`           // seconds
	Numerator     int64             `json:"numerator"`
	Denominator   int64             `json:"denominator"`
	Threshold     float64           `json:"threshold"` // a ratio
	MinSamples    int64             `json:"min_samples"`
	LastedMs      int64             `json:"lasted_ms,omitempty"` // how long a stall had lasted
	TopError      string            `json:"top_error,omitempty"`
	TopErrorCount int64             `json:"top_error_count,omitempty"`
	Runs          []string          `json:"runs,omitempty"` // ids of example runs
	Writer        string            `json:"writer"`         // which collector made it
}

func groupColumns[R any](at func(*R) *AlertGroup) []column[R] {
	return []column[R]{
		field("service", func(r *R) *string { return &at(r).Service }),
		field("environment", func(r *R) *string { return &at(r).Environment }),
		field("version", func(r *R) *string { return &at(r).Version }),
		field("step", func(r *R) *string { return &at(r).Step }),
		field("provider", func(r *R) *string { return &at(r).Provider }),
	}
}

var sampleColumns = slices.Concat([]column[AlertSample]{
	instant("instant", func(s *AlertSample) *time.Time { return &s.Instant }),
	field("rule", func(s *AlertSample) *string { return &s.Rule }),
	field("signal", func(s *AlertSample) *string { return &s.Signal }),
}, groupColumns(func(s *AlertSample) *AlertGroup { return &s.Group }), []column[AlertSample]{
	field("window_s", func(s *AlertSample) *uint32 { return &s.WindowS }),
	field("numerator", func(s *AlertSample) *int64 { return &s.Numerator }),
	field("denominator", func(s *AlertSample) *int64 { return &s.Denominator }),
	field("threshold", func(s *AlertSample) *float64 { return &s.Threshold }),
	field("min_samples", func(s *AlertSample) *int64 { return &s.MinSamples }),
	field("state", func(s *AlertSample) *string { return &s.State }),
})

var transitionColumns = slices.Concat([]column[AlertTransition]{
	instant("at", func(t *AlertTransition) *time.Time { return &t.At }),
	field("rule", func(t *AlertTransition) *string { return &t.Rule }),
	field("signal", func(t *AlertTransition) *string { return &t.Signal }),
}, groupColumns(func(t *AlertTransition) *AlertGroup { return &t.Group }), []column[AlertTransition]{
	field("fingerprint", func(t *AlertTransition) *uint64 { return &t.Fingerprint }),
	field("labels", func(t *AlertTransition) *map[string]string { return &t.Labels }),
	field("from", func(t *AlertTransition) *string { return &t.From }),
	field("to", func(t *AlertTransition) *string { return &t.To }),
	field("reason", func(t *AlertTransition) *string { return &t.Reason }),
	instant("since", func(t *AlertTransition) *time.Time { return &t.Since }),
	instant("starts_at", func(t *AlertTransition) *time.Time { return &t.StartsAt }),
	field("window_s", func(t *AlertTransition) *uint32 { return &t.WindowS }),
	field("numerator", func(t *AlertTransition) *int64 { return &t.Numerator }),
	field("denominator", func(t *AlertTransition) *int64 { return &t.Denominator }),
	field("threshold", func(t *AlertTransition) *float64 { return &t.Threshold }),
	field("min_samples", func(t *AlertTransition) *int64 { return &t.MinSamples }),
	field("lasted_ms", func(t *AlertTransition) *int64 { return &t.LastedMs }),
	field("top_error", func(t *AlertTransition) *string { return &t.TopError }),
	field("top_error_count", func(t *AlertTransition) *int64 { return &t.TopErrorCount }),
	field("runs", func(t *AlertTransition) *[]string { return &t.Runs }),
	field("writer", func(t *AlertTransition) *string { return &t.Writer }),
})

// instant keeps a time, the zero time as 1970.
func instant[R any](name string, at func(*R) *time.Time) column[R] {
	c := field(name, at)
	c.put = func(col driver.BatchColumn, rows []R) error {
		times := make([]time.Time, len(rows))
		for i := range rows {
			times[i] = time.Unix(0, 0)
			if t := *at(&rows[i]); !t.IsZero() {
				times[i] = t
			}
		}
		return col.Append(times)
	}
	c.dest = func(row *R) any { return &intoInstant{at(row)} }
	return c
}

// intoInstant reads 1970 as the zero time.
type intoInstant struct{ at *time.Time }

// Scan takes the time that the driver decoded.
func (d *intoInstant) Scan(src any) error {
	t, ok := src.(time.Time)
	if !ok {
		return fmt.Errorf("the store has %T where a time is expected", src)
	}
	*d.at = time.Time{}
	if t.UnixNano() != 0 {
		*d.at = t.UTC()
	}
	return nil
}

// InsertAlertSamples writes the samples of an evaluation. It may be repeated.
func InsertAlertSamples(ctx context.Context, conn driver.Conn, samples []AlertSample) error {
	return insert(ctx, conn, "alert_samples", sampleColumns, samples)
}

// InsertAlertTransitions writes transitions. It may be repeated; what is written later
// about the same transition takes its place.
func InsertAlertTransitions(ctx context.Context, conn driver.Conn, transitions []AlertTransition) error {
	return insert(ctx, conn, "alert_transitions", transitionColumns, transitions)
}

// MaxAlertRows bounds what one question about the history of alerts may return.
const MaxAlertRows = 100_000

// AlertFilter narrows the history of alerts. Zero values do not.
type AlertFilter struct {
	Since, Until time.Time         // [Since, Until)
	Rule         string            //
	Labels       map[string]string // values of service, environment, version, step and provider
	Group        *AlertGroup       // this group and no other
	Fingerprint  *uint64           // of transitions only: samples have none
	Limit        int               // the latest so many; at most MaxAlertRows, which is the default
}

var groupNames = []string{"service", "environment", "version", "step", "provider"}

// query writes the SELECT of a table's columns, the latest rows first.
func (f AlertFilter) query(table, at, columns string) (text string, args []any, err error) {
	var conditions []string
	add := func(condition string, value any) {
		conditions = append(conditions, condition)
		args = append(args, value)
	}
	if !f.Since.IsZero() {
		add(at+" >= fromUnixTimestamp64Milli(?, 'UTC')", f.Since.UnixMilli())
	}
	if !f.Until.IsZero() {
		add(at+" < fromUnixTimestamp64Milli(?, 'UTC')", f.Until.UnixMilli())
	}
	if f.Rule != "" {
		add("rule = ?", f.Rule)
	}
	if f.Group != nil {
		add("(service, environment, version, step, provider) = (?, ?, ?, ?, ?)", f.Group.Service)
		args = append(args, f.Group.Environment, f.Group.Version, f.Group.Step, f.Group.Provider)
	}
	if f.Fingerprint != nil {
		add("fingerprint = ?", *f.Fingerprint)
	}
	for _, name := range slices.Sorted(maps.Keys(f.Labels)) {
		if !slices.Contains(groupNames, name) {
			return "", nil, fmt.Errorf("alerts are not grouped by %q: use one of %s", name, strings.Join(groupNames, ", "))
		}
		add(name+" = ?", f.Labels[name])
	}
	where := ""
	if len(conditions) > 0 {
		where = " WHERE " + strings.Join(conditions, " AND ")
	}
	limit := f.Limit
	if limit <= 0 || limit > MaxAlertRows {
		limit = MaxAlertRows
	}
	return fmt.Sprintf("SELECT %s FROM %s FINAL%s ORDER BY %s DESC, rule, service, environment, version, step, provider LIMIT %d", columns, table, where, at, limit), args, nil
}

func alertRows[R any](ctx context.Context, conn driver.Conn, f AlertFilter, table, at string, columns []column[R]) ([]R, error) {
	query, args, err := f.query(table, at, readList(columns))
	if err != nil {
		return nil, err
	}
	var found []R
	err = readRows(ctx, conn, query, args, columns, func(row *R) error {
		found = append(found, *row)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", table, err)
	}
	slices.Reverse(found)
	return found, nil
}

// AlertSamples reads samples in the order of time.
func AlertSamples(ctx context.Context, conn driver.Conn, f AlertFilter) ([]AlertSample, error) {
	return alertRows(ctx, conn, f, "alert_samples", "instant", sampleColumns)
}

// AlertTransitions reads transitions in the order of time.
func AlertTransitions(ctx context.Context, conn driver.Conn, f AlertFilter) ([]AlertTransition, error) {
	return alertRows(ctx, conn, f, "alert_transitions", "at", transitionColumns)
}

// AlertFingerprints lists the fingerprints of transitions that lie from first to last, both
// included: the lowest so many.
func AlertFingerprints(ctx context.Context, conn driver.Conn, first, last uint64, limit int) ([]uint64, error) {
	var found []uint64
	statement := "SELECT arraySort(groupUniqArray(fingerprint)) FROM (SELECT DISTINCT fingerprint FROM alert_transitions WHERE fingerprint BETWEEN ? AND ? ORDER BY fingerprint LIMIT ?)"
	if err := conn.QueryRow(ctx, statement, first, last, limit).Scan(&found); err != nil {
		return nil, fmt.Errorf("look for alerts in alert_transitions: %w", err)
	}
	return found, nil
}

// KnownAlerts are those of the fingerprints of which the history has a transition.
func KnownAlerts(ctx context.Context, conn driver.Conn, fingerprints []uint64) ([]uint64, error) {
	if len(fingerprints) == 0 {
		return nil, nil
	}
	var found []uint64
	if err := conn.QueryRow(ctx, "SELECT groupUniqArray(fingerprint) FROM alert_transitions WHERE has(?, fingerprint)", fingerprints).Scan(&found); err != nil {
		return nil, fmt.Errorf("look for alerts in alert_transitions: %w", err)
	}
	return found, nil
}

// LastAlertInstant is the latest instant of which samples are kept, the zero time if
// there are none.
func LastAlertInstant(ctx context.Context, conn driver.Conn) (time.Time, error) {
	var at time.Time
	if err := conn.QueryRow(ctx, "SELECT max(instant) FROM alert_samples").Scan(&intoInstant{&at}); err != nil {
		return time.Time{}, fmt.Errorf("read when alerts were evaluated last: %w", err)
	}
	return at, nil
}
