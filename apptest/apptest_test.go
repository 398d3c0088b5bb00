//go:build linux

package apptest

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryledger/retryledger/analysis/answer"
	"github.com/retryledger/retryledger/analysis/attribution"
	"github.com/retryledger/retryledger/ingest/dialect"
	"github.com/retryledger/retryledger/internal/collectortest"
	"github.com/retryledger/retryledger/internal/porttest"
)

var (
	seed      = flag.Uint64("seed", 0, "seed of the plan; 0 draws one")
	faults    = flag.Int("faults", 18, "faults of processes in the plan; those of messages come on top")
	only      = flag.String("only", "", "waves of the plan to run, such as 3,7 or 4-9")
	kinds     = flag.String("kinds", "", "kinds of faults of processes to draw from, such as kill-engine,fill-disk; all if empty")
	powerCuts = flag.Int("power-cuts", 4, "how often TestPowerCuts cuts the power")
	tries     = flag.Int("shrink", 0, "how often a plan that fails is run again to make it smaller")
)

func TestMain(m *testing.M) { collectortest.Main(m) }

// TestFaults carries out one plan: the ledger is the truth in the end.
func TestFaults(t *testing.T) {
	if *seed == 0 {
		*seed = rand.Uint64()
	}
	some, err := ParseFaults(*kinds)
	require.NoError(t, err)
	whole := NewPlan(*seed, *faults, some)
	plan, err := whole.Only(*only)
	require.NoError(t, err)
	t.Logf("seed %d; again with: go test ./apptest -run TestFaults -seed %d -faults %d", *seed, *seed, *faults)
	report, err := attempt(t, plan)
	if report != nil {
		t.Log(report)
	}
	if err == nil {
		assert.Zero(t, report.Lost)
		assert.Zero(t, report.Double)
		return
	}
	t.Errorf("%v", err)
	if *tries > 0 {
		kept := plan.shrink(*tries, func(smaller Plan) bool {
			_, err := attempt(t, smaller)
			return err != nil
		})
		t.Logf("the smallest plan that still fails: -seed %d -faults %d -only %s", *seed, *faults, strings.Trim(strings.ReplaceAll(fmt.Sprint(kept), " ", ","), "[]"))
	}
}

// TestPowerCuts cuts the power of all processes and of their disk, again and again: what
// was acknowledged is on the disk.
func TestPowerCuts(t *testing.T) {
	if *seed == 0 {
		*seed = rand.Uint64()
	}
	t.Logf("seed %d; again with: go test ./apptest -run TestPowerCuts -seed %d -power-cuts %d", *seed, *seed, *powerCuts)
	report, err := attempt(t, NewPlan(*seed, *powerCuts, []Fault{PowerCut}))
	if errors.Is(err, errNoPlatter) {
		t.Skip(err)
	}
	if report != nil {
		t.Log(report)
	}
	require.NoError(t, err)
	assert.Zero(t, report.Lost)
	assert.Zero(t, report.Double)
}

func attempt(t *testing.T, plan Plan) (*Report, error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	return run(ctx, t.TempDir(), porttest.Free(t, 9), plan, t.Logf)
}

// accounted makes runs: what they count themselves, and what attribution makes of them.
func accounted(t *testing.T, runs int) (*Truth, answer.Top) {
	t.Helper()
	truth := newTruth()
	g := &traffic{r: rand.New(rand.NewPCG(1, 2)), truth: truth, seed: 1}
	var spans []sentSpan
	for range runs {
		spans = append(spans, g.run(time.Now())...)
	}
	rows, rejected := dialect.Normalise(g.request(spans), time.Now().UnixNano())
	require.Empty(t, rejected)
	return truth, answer.TopOf(attribution.Account(rows, attribution.Defaults()), answer.Filter{})
}

// The truth that the traffic counts is what attribution makes of its spans.
func TestTrafficIsCountedAsItIsAccountedFor(t *testing.T) {
	truth, top := accounted(t, 1000)
	assert.Equal(t, truth.Runs, top.Runs)
	assert.Equal(t, truth.Complete, top.Completion["complete"])
	assert.Len(t, top.Steps, len(truth.Steps))
	for _, s := range top.Steps {
		c := truth.Steps[stepKey{s.Service, s.Step}]
		require.NotNil(t, c, s.Step)
		assert.Equal(t, Counts{
			Executions: s.Executions, Visits: s.Visits, NodeRetries: *s.Retries.Node, Orchestrator: *s.Retries.Orchestrator,
			Calls: s.Calls, CallsFailed: s.CallsFailed, CallRetries: *s.Retries.Call, Fallbacks: s.Fallbacks,
			InputTokens: s.Tokens.Input, OutputTokens: s.Tokens.Output,
		}, *c, "%s of %s", s.Step, s.Service)
		assert.Positive(t, c.NodeRetries)
		assert.Positive(t, c.Fallbacks)
	}
}

func TestAPlanIsMadeOfItsSeed(t *testing.T) {
	plan := NewPlan(7, 40, processFaults)
	assert.Equal(t, plan, NewPlan(7, 40, processFaults))
	assert.NotEqual(t, plan, NewPlan(8, 40, processFaults))
	seen := make(map[Fault]bool)
	for _, w := range plan.Waves[:len(processFaults)] {
		seen[w.Process] = true
	}
	assert.Len(t, seen, len(processFaults), "each kind once before any twice")
	some, err := plan.Only("3,7-9")
	require.NoError(t, err)
	assert.Equal(t, []Wave{plan.Waves[3], plan.Waves[7], plan.Waves[8], plan.Waves[9]}, some.Waves)
	for _, bad := range []string{"40", "x", "5-3", "-1"} {
		_, err := plan.Only(bad)
		assert.Error(t, err, bad)
	}
}

func TestShrinkFindsTheWavesThatMatter(t *testing.T) {
	plan := NewPlan(3, 33, processFaults)
	kept := plan.shrink(200, func(p Plan) bool {
		has := func(w Wave) bool {
			for _, other := range p.Waves {
				if other.Seed == w.Seed {
					return true
				}
			}
			return false
		}
		return has(plan.Waves[5]) && has(plan.Waves[21])
	})
	assert.Equal(t, []int{5, 21}, kept)
}

// A disk that is full takes nothing more, and something again when it is emptied.
func TestADiskCanBeFilled(t *testing.T) {
	d, err := newDisk(filepath.Join(t.TempDir(), "disk"))
	require.NoError(t, err)
	defer d.close()
	if !d.mounted {
		t.Skip("this user may not mount a small disk")
	}
	require.NoError(t, d.fill())
	assert.Error(t, os.WriteFile(filepath.Join(d.folder, "x"), []byte("x"), 0o600))
	require.NoError(t, d.empty())
	assert.NoError(t, os.WriteFile(filepath.Join(d.folder, "x"), []byte("x"), 0o600))
}

// What a ledger lacks or has too much is found.
func TestALedgerThatIsWrongIsTold(t *testing.T) {
	truth, right := accounted(t, 50)
	answers := func(status answer.Status, top answer.Top) *node {
		mux := http.NewServeMux()
		write := func(value any) http.HandlerFunc {
			return func(w http.ResponseWriter, _ *http.Request) { assert.NoError(t, json.NewEncoder(w).Encode(value)) }
		}
		mux.HandleFunc("/api/v1/status", write(status))
		mux.HandleFunc("/api/v1/top", write(top))
		server := httptest.NewServer(mux)
		t.Cleanup(server.Close)
		return &node{process: &process{name: "collector"}, place: collectortest.Place{API: server.Listener.Addr().String()}}
	}
	r := &runner{truth: truth}
	found, err := r.compare(t.Context(), answers(answer.Status{Spans: truth.Spans}, right))
	require.NoError(t, err)
	assert.Empty(t, found)

	found, err = r.compare(t.Context(), answers(answer.Status{Spans: truth.Spans - 3}, right))
	require.NoError(t, err)
	assert.Len(t, found, 1)
	assert.EqualValues(t, 3, r.report.Lost)

	twice := right
	twice.Steps = slices.Clone(right.Steps)
	twice.Steps[0].Executions += 2
	found, err = r.compare(t.Context(), answers(answer.Status{Spans: truth.Spans}, twice))
	require.NoError(t, err)
	assert.Len(t, found, 1)
	assert.EqualValues(t, 2, r.report.Double)
}

// Without this a power cut that cuts nothing would prove nothing.
func TestAPlatterKeepsWhatItConfirmedAlone(t *testing.T) {
	p, err := newPlatter(t.Context(), t.TempDir())
	if errors.Is(err, errNoPlatter) {
		t.Skip(err)
	}
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, p.unmount()) })
	write := func(name string, confirmed bool) {
		f, err := os.Create(filepath.Join(p.folder, name))
		require.NoError(t, err)
		_, err = f.WriteString(name)
		require.NoError(t, err)
		if confirmed {
			require.NoError(t, f.Sync())
			folder, err := os.Open(p.folder)
			require.NoError(t, err)
			require.NoError(t, errors.Join(folder.Sync(), folder.Close()))
		}
		require.NoError(t, f.Close())
	}
	write("kept", true)
	write("lost", false)
	require.NoError(t, p.cut())
	assert.Error(t, os.WriteFile(filepath.Join(p.folder, "late"), nil, 0o600), "nothing is written any more")
	require.NoError(t, p.restore(t.Context()))
	content, err := os.ReadFile(filepath.Join(p.folder, "kept"))
	require.NoError(t, err)
	assert.Equal(t, "kept", string(content))
	assert.NoFileExists(t, filepath.Join(p.folder, "lost"))
	assert.NoFileExists(t, filepath.Join(p.folder, "late"))
}
