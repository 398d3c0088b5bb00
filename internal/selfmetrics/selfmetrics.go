// Package selfmetrics keeps in the store what a collector measures of itself, so that a
// dashboard over the store alone can show it. The same numbers are metrics of the
// collector; this is for who reads none.
package selfmetrics

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"go.uber.org/zap"

	"github.com/retryledger/retryledger/schema"
)

// Every is the time between two writes.
const Every = 10 * time.Second

// patience bounds what a write waits for the store.
const patience = 5 * time.Second

// Log adds up what is measured until it is written. It holds one row for each name, so a
// store that is away costs no memory: what is written then tells of a longer time.
type Log struct {
	writer string

	mu    sync.Mutex
	sums  map[string]schema.SelfMetric
	looks []func()
}

// New is an empty log of this collector.
func New() *Log { return &Log{writer: Writer(), sums: map[string]schema.SelfMetric{}} }

// Writer names this collector in what it writes: its host and process.
func Writer() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return fmt.Sprintf("%s/%d", host, os.Getpid())
}

// Add takes one measurement, or so many things that were counted. name is one of the
// constants of package schema.
func (l *Log) Add(name string, value float64) {
	l.merge(schema.SelfMetric{Writer: l.writer, Name: name, Times: 1, Total: value, Largest: value})
}

func (l *Log) merge(v schema.SelfMetric) {
	l.mu.Lock()
	defer l.mu.Unlock()
	sum, ok := l.sums[v.Name]
	if ok {
		v.Times, v.Total, v.Largest = v.Times+sum.Times, v.Total+sum.Total, max(v.Largest, sum.Largest)
	}
	l.sums[v.Name] = v
}

// BeforeEach calls look before each write, to Add what only can be looked at.
func (l *Log) BeforeEach(look func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.looks = append(l.looks, look)
}

// Run writes until ctx ends. A write that fails is part of the next one.
func (l *Log) Run(ctx context.Context, conn func(context.Context) (driver.Conn, error), log *zap.Logger) {
	ticker := time.NewTicker(Every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		c, err := conn(ctx)
		if err != nil {
			continue // who needs the store says so
		}
		if err := l.Write(ctx, c); err != nil && ctx.Err() == nil {
			log.Debug("What the collector measures of itself was not written; it is tried again.", zap.Error(err))
		}
	}
}

// Write writes what was measured since the last write.
func (l *Log) Write(ctx context.Context, conn driver.Conn) error {
	l.mu.Lock()
	looks := l.looks
	l.mu.Unlock()
	for _, look := range looks {
		look()
	}
	l.mu.Lock()
	rows := slices.Collect(maps.Values(l.sums))
	clear(l.sums)
	l.mu.Unlock()
	if len(rows) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := schema.InsertSelfMetrics(ctx, conn, rows); err != nil {
		for _, row := range rows {
			l.merge(row)
		}
		return err //nolint:wrapcheck // schema says what was attempted
	}
	return nil
}
