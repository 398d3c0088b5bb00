// Package query answers the questions in SQL, over the views of the current ledger.
// Its numbers are those that package answer computes from the same ledger in memory.
//
// Every value that comes from outside is a bound parameter. A window filters
// attempts by their own end; the ends of their traces only say which rows need not
// be read. Errors of the store come back wrapped; *AmbiguousError and ErrNotFound
// are the asker's.
package query

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"strings"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"github.com/ClickHouse/clickhouse-go/v2/lib/proto"

	"github.com/retryledger/retryledger/analysis/answer"
)

// Limits bound what one question may cost the store.
type Limits struct {
	Timeout   time.Duration // of one statement, 0 none
	MaxMemory int64         // bytes of one statement, 0 the store's own limit
	MaxRows   int           // rows that one statement may return, 0 none
	MaxRead   int64         // rows of the store that one statement may read, 0 none
}

// Codes by which ClickHouse refuses a question for its size (src/Common/ErrorCodes.cpp).
const (
	codeTooManyRows        = 158 // to read
	codeTimeoutExceeded    = 159
	codeTooSlow            = 160
	codeMemoryLimit        = 241
	codeTooManyRowsOrBytes = 396 // in the answer
)

// Excess says in a sentence for the asker which limit a question went over, and whether
// it is the question's own fault: it is not where the store as a whole has no memory left
// or takes too long. "" for any other error.
func (l Limits) Excess(err error) (sentence string, own bool) {
	var exception *proto.Exception
	if !errors.As(err, &exception) {
		return "", false
	}
	switch exception.Code {
	case codeTooManyRows:
		return fmt.Sprintf("the question would read more than %d rows of the store; ask for a shorter window, or raise max_query_rows", l.MaxRead), true
	case codeTooManyRowsOrBytes:
		return "the answer has too many rows; ask for a shorter window", true
	case codeMemoryLimit:
		if strings.Contains(exception.Message, "Query memory limit") {
			return fmt.Sprintf("the question needs more than %d MiB of the store's memory; ask for a shorter window, or raise max_query_memory_mib", l.MaxMemory>>20), true
		}
		return "the store has no memory left for the question; ask again later, or for a shorter window", false
	case codeTimeoutExceeded, codeTooSlow:
		return fmt.Sprintf("the answer took longer than %s; ask for a shorter window, or raise query_timeout", l.Timeout), false
	}
	return "", false
}

// Asker asks one database.
type Asker struct {
	conn   driver.Conn
	limits Limits
}

// New asks through conn, whose database holds the schema.
func New(conn driver.Conn, limits Limits) Asker { return Asker{conn: conn, limits: limits} }

// settings are sent with every statement.
func (l Limits) settings() clickhouse.Settings {
	settings := clickhouse.Settings{
		"readonly": 2, // settings may be set, nothing may be written
	}
	if l.Timeout > 0 {
		settings["max_execution_time"] = int64(math.Ceil(l.Timeout.Seconds()))
	}
	if l.MaxMemory > 0 {
		settings["max_memory_usage"] = l.MaxMemory
	}
	if l.MaxRead > 0 {
		settings["max_rows_to_read"] = l.MaxRead
		settings["read_overflow_mode"] = "throw"
	}
	if l.MaxRows > 0 {
		settings["max_result_rows"] = l.MaxRows
		settings["result_overflow_mode"] = "throw"
	}
	return settings
}

// Within bounds what the statements of ctx may cost. The second value ends what it began.
func (l Limits) Within(ctx context.Context) (context.Context, context.CancelFunc) {
	cancel := func() {}
	if l.Timeout > 0 {
		ctx, cancel = context.WithTimeout(ctx, l.Timeout)
	}
	return clickhouse.Context(ctx, clickhouse.WithSettings(l.settings())), cancel
}

// read runs one statement and hands every row to scan; what names the question in
// errors.
func (a Asker) read(ctx context.Context, what, statement string, parameters map[string]any, scan func(driver.Rows) error) (err error) {
	ctx, cancel := a.limits.Within(ctx)
	defer cancel()
	args := make([]any, 0, len(parameters))
	for name, value := range parameters {
		args = append(args, clickhouse.Named(name, value))
	}
	rows, err := a.conn.Query(ctx, statement, args...)
	if err != nil {
		return fmt.Errorf("ask the store for %s: %w", what, err)
	}
	defer func() {
		if closing := rows.Close(); err == nil && closing != nil {
			err = fmt.Errorf("read %s from the store: %w", what, closing)
		}
	}()
	for rows.Next() {
		if err := scan(rows); err != nil {
			return fmt.Errorf("read %s from the store: %w", what, err)
		}
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("read %s from the store: %w", what, err)
	}
	return nil
}

// parameters binds a filter, with what more adds.
func parameters(f answer.Filter, more map[string]any) map[string]any {
	bound := map[string]any{
		"since": int64(math.MinInt64), "account_since": int64(math.MinInt64),
		"until": int64(math.MaxInt64), "traces_until": int64(math.MaxInt64), "service": f.Service,
	}
	if !f.Since.IsZero() {
		bound["since"], bound["account_since"] = f.Since.UnixNano(), f.Since.UnixNano()-slackNs
	}
	if !f.Until.IsZero() {
		bound["until"], bound["traces_until"] = f.Until.UnixNano(), f.Until.UnixNano()+slackNs
	}
	maps.Copy(bound, more)
	return bound
}

// inWindow holds for the attempts and operations of a filter; ofTraces for the rows of
// traces that may hold some; ofAccounts for those that may hold the accounts of runs
// with such attempts. They take the parameters of the function parameters.
const (
	inWindow = `end_bounded_ns >= {since:Int64} AND end_bounded_ns < {until:Int64} AND ` + ofTraces
	ofTraces = `trace_end_ns >= {since:Int64} AND trace_first_end_ns < {traces_until:Int64} AND ` + ofService

	ofAccounts = `trace_end_ns >= {account_since:Int64} AND ` + ofService
	ofService  = `({service:String} = '' OR service = {service:String})`
)

// slackNs is by how much a row may lie outside a window and still be read for it. An
// attempt known from an event ends before any span of its trace does, and a run that
// is resumed has its account with its first trace.
const slackNs = int64(7 * 24 * time.Hour)
