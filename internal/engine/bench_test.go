//go:build linux

package engine_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/retryledger/retryledger/internal/engine"
	"github.com/retryledger/retryledger/internal/engine/enginetest"
)

// BenchmarkStart is what a collector pays for its engine: the time until it
// answers and until it has ended, over a store with a table of a million rows.
func BenchmarkStart(b *testing.B) {
	dir := b.TempDir()
	e := enginetest.Start(b, engine.Options{DataDir: dir})
	exec(b, open(b, e.ClientOptions()), "CREATE DATABASE ledger", table, "INSERT INTO ledger.rows SELECT number FROM numbers(1000000)")
	require.NoError(b, e.Shutdown(context.Background()))
	var ready, end time.Duration
	for b.Loop() {
		begin := time.Now()
		e, err := engine.Start(context.Background(), engine.Options{DataDir: dir})
		require.NoError(b, err)
		ready += time.Since(begin)
		begin = time.Now()
		require.NoError(b, e.Shutdown(context.Background()))
		end += time.Since(begin)
	}
	b.ReportMetric(float64(ready.Milliseconds())/float64(b.N), "ready-ms")
	b.ReportMetric(float64(end.Milliseconds())/float64(b.N), "shutdown-ms")
}

// BenchmarkIdle is what an engine costs that nobody asks anything, watched for
// 20 s; run it with -benchtime=1x.
func BenchmarkIdle(b *testing.B) {
	e := enginetest.Start(b, engine.Options{})
	exec(b, open(b, e.ClientOptions()), "CREATE DATABASE ledger", table, "INSERT INTO ledger.rows SELECT number FROM numbers(1000000)")
	time.Sleep(5 * time.Second) // merges and the first collection of metrics
	pid := e.Status().PID
	cpu0, written0 := cpuTicks(b, pid), written(b, pid)
	const watched = 20 * time.Second
	for b.Loop() {
		time.Sleep(watched)
	}
	const ticksPerSecond = 100 // of Linux
	b.ReportMetric(float64(cpuTicks(b, pid)-cpu0)/ticksPerSecond/watched.Seconds()/float64(b.N)*100, "cpu-%")
	b.ReportMetric(float64(written(b, pid)-written0)/watched.Seconds()/float64(b.N), "written-B/s")
	b.ReportMetric(residentMiB(b, pid), "resident-MiB")
}

func cpuTicks(b *testing.B, pid int) int {
	b.Helper()
	var utime, stime int
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	require.NoError(b, err)
	f := strings.Fields(string(raw[strings.LastIndex(string(raw), ")")+2:]))
	_, err = fmt.Sscan(f[11]+" "+f[12], &utime, &stime)
	require.NoError(b, err)
	return utime + stime
}

func procField(b *testing.B, pid int, file, field string) (n int64) {
	b.Helper()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, file))
	require.NoError(b, err)
	for line := range strings.Lines(string(raw)) {
		if v, ok := strings.CutPrefix(line, field); ok {
			_, err := fmt.Sscan(v, &n)
			require.NoError(b, err)
			return n
		}
	}
	b.Fatalf("no %s in /proc/%d/%s", field, pid, file)
	return 0
}

func written(b *testing.B, pid int) int64 {
	b.Helper()
	return procField(b, pid, "io", "write_bytes:")
}
func residentMiB(b *testing.B, pid int) float64 {
	b.Helper()
	return float64(procField(b, pid, "status", "VmRSS:")) / 1024
}
