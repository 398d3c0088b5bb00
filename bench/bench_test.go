//go:build linux

package main

import (
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var end = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func written(t *testing.T, spans, promptBytes int) *traffic {
	t.Helper()
	recorded, err := readCaptures(filepath.Join("..", "testdata", "captures"))
	require.NoError(t, err)
	out, err := multiply(recorded, filepath.Join(t.TempDir(), "traffic"), spans, promptBytes, 7, end)
	require.NoError(t, err)
	return out
}

func read(t *testing.T, in *traffic) (bodies [][]byte) {
	t.Helper()
	r, err := in.open()
	require.NoError(t, err)
	defer func() { require.NoError(t, r.f.Close()) }()
	for {
		body, err := r.next()
		if errors.Is(err, io.EOF) {
			return bodies
		}
		require.NoError(t, err)
		bodies = append(bodies, body)
	}
}

func TestTrafficIsDistinctAndComesAgain(t *testing.T) {
	t.Parallel()
	first := written(t, 30_000, 2000)
	bodies := read(t, first)
	require.Len(t, bodies, first.requests)
	require.GreaterOrEqual(t, first.spans, 30_000)
	type key [24]byte
	seen := map[key]bool{}
	scopes := map[string]bool{}
	var longest int
	for _, body := range bodies {
		request := ptraceotlp.NewExportRequest()
		require.NoError(t, request.UnmarshalProto(body))
		for _, rs := range request.Traces().ResourceSpans().All() {
			for _, ss := range rs.ScopeSpans().All() {
				scopes[ss.Scope().Name()] = true
				for _, span := range ss.Spans().All() {
					trace, id := span.TraceID(), span.SpanID()
					k := key(slices.Concat(trace[:], id[:]))
					require.False(t, seen[k], "span %s of trace %s comes twice", id, trace)
					seen[k] = true
					assert.False(t, span.EndTimestamp().AsTime().After(end))
					for _, value := range span.Attributes().All() {
						longest = max(longest, len(value.AsString()))
					}
				}
			}
		}
	}
	assert.Len(t, seen, first.spans)
	assert.Greater(t, len(scopes), 20, "a mix of instrumentations")
	assert.GreaterOrEqual(t, longest, 2000)
	assert.Equal(t, bodies, read(t, written(t, 30_000, 2000)), "one seed, one traffic")
}

func TestPromptsStayWhatTheyAre(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 1))
	for _, text := range []string{`{"messages": [{"role": "user", "content": "hello there"}]}`, `["a", "b"]`, `[1, 2]`, "plain", `say "hi" to them`} {
		longer := prose(text, 400, r)
		assert.GreaterOrEqual(t, len(longer), 400)
		if json.Valid([]byte(text)) && strings.Contains(text, `"`) {
			assert.True(t, json.Valid([]byte(longer)), longer)
		} else {
			assert.True(t, strings.HasPrefix(longer, text), longer)
		}
	}
}

// Our side alone, small: that every figure is one that was measured.
func TestARoundOfOurs(t *testing.T) {
	if testing.Short() {
		t.Skip("builds and runs the collector")
	}
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	t.Chdir("..")
	var out strings.Builder
	require.NoError(t, compare(t.Context(), []string{"-ours", "-rounds=1", "-spans=3000"}, &out))
	for _, f := range figures(&traffic{spans: 1}) {
		i := strings.Index(out.String(), f.name)
		require.GreaterOrEqual(t, i, 0, out.String())
		fields := strings.Fields(strings.SplitN(out.String()[i+len(f.name):], "\n", 2)[0])
		require.NotEmpty(t, fields)
		if f.name != "answers that asked to wait" {
			assert.NotEqual(t, "0", fields[0], f.name)
			assert.NotEqual(t, "0.0", fields[0], f.name)
		}
	}
}

func TestMedian(t *testing.T) {
	t.Parallel()
	assert.InDelta(t, 2.0, median([]float64{3, 1, 2}), 0)
	assert.InDelta(t, 2.5, median([]float64{4, 1, 3, 2}), 0)
}
