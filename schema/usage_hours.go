package schema

import (
	"context"
	_ "embed"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
)

//go:embed build_usage_hours.sql
var buildUsageHours string

const hourNs = int64(time.Hour)

// UsageSettle is how long an hour must have been left alone before its sums are built.
// No insert takes longer from the instant that its rows state to the instant at which
// they, and what they touch, can be read: what was written in the last UsageSettle may
// not be seen yet, so a row of sums does not claim to hold it.
const UsageSettle = 5 * time.Minute

// BuildUsageHours sums up at most limit of the hours that were written to since their
// sums were built, but not within the last settle, the latest hours first. It returns how
// many it built. Any number of collectors may do so at once.
func BuildUsageHours(ctx context.Context, conn driver.Conn, settle time.Duration, limit int) (int, error) {
	clockUs, err := Clock(ctx, conn)
	if err != nil {
		return 0, err
	}
	through := clockUs - settle.Microseconds()
	var hours []uint32
	err = conn.QueryRow(ctx, `SELECT groupArray(hour) FROM (
    SELECT touches.hour AS hour
    FROM (SELECT hour, max(touched_at) AS touched FROM ledger_touched GROUP BY hour) AS touches
    LEFT JOIN usage_hours_built AS built ON touches.hour = built.hour
    WHERE touched < fromUnixTimestamp64Micro({through:Int64}, 'UTC') AND built.through <= touched
    ORDER BY hour DESC LIMIT {most:UInt64})`,
		clickhouse.Named("through", through), clickhouse.Named("most", uint64(limit))).Scan(&hours)
	if err != nil {
		return 0, fmt.Errorf("find the hours whose sums are old: %w", err)
	}
	if len(hours) == 0 {
		return 0, nil
	}
	texts := make([]string, len(hours))
	for i, hour := range hours {
		texts[i] = strconv.FormatUint(uint64(hour), 10)
	}
	err = conn.Exec(ctx, buildUsageHours, clickhouse.Named("through", through), clickhouse.Named("hours", "["+strings.Join(texts, ",")+"]"),
		clickhouse.Named("from_ns", int64(slices.Min(hours))*hourNs), clickhouse.Named("to_ns", (int64(slices.Max(hours))+1)*hourNs))
	if err != nil {
		return 0, fmt.Errorf("build the sums of %d hours: %w", len(hours), err)
	}
	return len(hours), nil
}

// TouchHours says that what the ledger holds of hours is about to change. Who replaces a
// row calls it before with the hours of the old one: the new row says itself which are
// its own.
func TouchHours(ctx context.Context, conn driver.Conn, hours []uint32) error {
	if len(hours) == 0 {
		return nil
	}
	type touch struct {
		hour uint32
		at   time.Time
	}
	clockUs, err := Clock(ctx, conn)
	if err != nil {
		return err
	}
	touches := make([]touch, len(hours))
	for i, hour := range hours {
		touches[i] = touch{hour, time.UnixMicro(clockUs)}
	}
	err = insert(ctx, conn, "ledger_touched", []column[touch]{
		field("hour", func(t *touch) *uint32 { return &t.hour }),
		field("touched_at", func(t *touch) *time.Time { return &t.at }),
	}, touches)
	if err != nil {
		return fmt.Errorf("touch %d hours of the ledger: %w", len(hours), err)
	}
	return nil
}

// Hours are the hours since the epoch that the row says something about, as the column
// of this name has them.
func (r *LedgerRow) Hours() []uint32 {
	var hours []uint32
	add := func(endNs int64) {
		if hour := uint32(max(0, BoundedEnd(endNs, r.LastReceivedNs)/hourNs)); !slices.Contains(hours, hour) {
			hours = append(hours, hour)
		}
	}
	for i := range r.Attempts {
		add(r.Attempts[i].EndNs)
	}
	for i := range r.Operations {
		add(r.Operations[i].EndNs)
	}
	for i := range r.Runs {
		add(r.Runs[i].EndNs)
	}
	for i := range r.Violations {
		add(r.Violations[i].TimeNs)
	}
	return hours
}
