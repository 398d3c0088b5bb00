package dashboards

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"github.com/stretchr/testify/require"

	"github.com/retryledger/retryledger/internal/storetest"
	"github.com/retryledger/retryledger/internal/syntheticledger"
	"github.com/retryledger/retryledger/schema"
)

// BenchmarkPanels asks every panel, and each dashboard as a whole with all its panels at
// once, over thirty days of some ten million attempts. Filling the store takes minutes;
// RETRYLEDGER_BENCH_TRACES makes it smaller. cpu-ms is the engine's processor time.
//
//	go test ./dashboards -run xxx -bench Panels -benchtime 5x -timeout 1h
func BenchmarkPanels(b *testing.B) {
	traces := 1_050_000
	if text := os.Getenv("RETRYLEDGER_BENCH_TRACES"); text != "" {
		var err error
		traces, err = strconv.Atoi(text)
		require.NoError(b, err)
	}
	store := storetest.Empty(b)
	to := time.Now().UTC()
	require.NoError(b, syntheticledger.Fill(b.Context(), store.Conn, syntheticledger.Options{
		Seed: "bench", Traces: traces, From: to.Add(-30 * 24 * time.Hour), To: to,
	}))
	_, err := schema.BuildUsageHours(b.Context(), store.Conn, 0, 10_000)
	require.NoError(b, err)
	// What is written from now on is not in the sums: the last hour is read from the ledger.
	require.NoError(b, syntheticledger.Fill(b.Context(), store.Conn, syntheticledger.Options{
		Seed: "now", Traces: traces / 720, From: to.Add(-time.Hour), To: to,
	}))
	var attempts uint64
	require.NoError(b, store.Conn.QueryRow(b.Context(), "SELECT sum(length(`attempts.run`)) FROM ledger").Scan(&attempts))
	b.Logf("%d attempts", attempts)
	for uid, d := range documents(b) {
		whole := everything(d)
		whole.from, whole.to = to.Add(-30*24*time.Hour), to
		var page []string
		for _, p := range d.all() {
			for _, q := range p.Targets {
				sql := whole.expanded(b, q.RawSQL, p.MaxDataPoints)
				page = append(page, sql)
				b.Run(fmt.Sprint(uid, "/", p.Title, " ", q.RefID), func(b *testing.B) { askAll(b, store.Conn, []string{sql}) })
			}
		}
		b.Run(uid, func(b *testing.B) { askAll(b, store.Conn, page) })
	}
}

// askAll asks all queries at once, as a browser does.
func askAll(b *testing.B, conn driver.Conn, queries []string) {
	b.Helper()
	var cpu atomic.Int64
	ctx := clickhouse.Context(context.Background(), clickhouse.WithProfileEvents(func(events []clickhouse.ProfileEvent) {
		for _, e := range events {
			if e.Name == "UserTimeMicroseconds" || e.Name == "SystemTimeMicroseconds" {
				cpu.Add(e.Value)
			}
		}
	}))
	for b.Loop() {
		var asking sync.WaitGroup
		for _, sql := range queries {
			asking.Go(func() {
				rows, err := conn.Query(ctx, sql)
				if err != nil {
					b.Errorf("%v:\n%s", err, sql)
					return
				}
				defer func() { _ = rows.Close() }()
				for rows.Next() {
				}
				if err := rows.Err(); err != nil {
					b.Errorf("%v:\n%s", err, sql)
				}
			})
		}
		asking.Wait()
	}
	b.ReportMetric(float64(cpu.Load())/1000/float64(b.N), "cpu-ms/op")
}
