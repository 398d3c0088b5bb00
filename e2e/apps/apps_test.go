package apps

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryledger/retryledger/analysis/answer"
	"github.com/retryledger/retryledger/internal/collectortest"
)

const (
	// appearWithin bounds the wait for the spans of an application to be in the ledger.
	appearWithin = 30 * time.Second
	// atOnce is how many applications run at the same time: most of the time they wait.
	atOnce = 6
)

// ecosystem is one folder of examples.
type ecosystem struct {
	name             string
	needs            []string // programs
	instrumentations []string
	applications     []string
	// leftOut tells whether an application is nothing for an instrumentation.
	leftOut func(instrumentation, application string) bool
	command func(folder, installed string, args ...string) *exec.Cmd
}

var ecosystems = []ecosystem{
	{
		name:             "python",
		needs:            []string{"python3"},
		instrumentations: []string{"openinference", "openllmetry", "langsmith", "langfuse", "langfuse-everything", "plain"},
		applications:     []string{"calls", "graphs", "agents", "resume", "contracts", "budget"},
		leftOut: func(instrumentation, application string) bool {
			return application == "budget" && instrumentation != "plain"
		},
		command: func(folder, installed string, args ...string) *exec.Cmd {
			cmd := exec.Command(filepath.Join(installed, "bin", "python"), append([]string{"run.py"}, args...)...)
			cmd.Dir = folder
			return cmd
		},
	},
	{
		name:             "javascript",
		needs:            []string{"node", "npm"},
		instrumentations: []string{"openinference", "langfuse", "langfuse-everything", "plain"},
		applications:     []string{"calls", "graphs", "agents", "resume", "contracts", "ai-sdk"},
		leftOut: func(instrumentation, application string) bool {
			return application == "ai-sdk" && instrumentation == "openinference"
		},
		command: func(_, installed string, args ...string) *exec.Cmd {
			cmd := exec.Command("node", append([]string{"--no-warnings", "run.mjs"}, args...)...)
			cmd.Dir = installed
			return cmd
		},
	},
}

// What the ledger says of real applications is what these counted themselves.
func TestLedgerEqualsCounters(t *testing.T) {
	c := collector{collectortest.Start(t, collectortest.NewPlace(t))}
	defer c.Stop()
	needed := map[int]bool{}
	for _, e := range ecosystems {
		t.Run(e.name, func(t *testing.T) {
			for _, p := range c.runAll(t, e) {
				t.Run(p.instrumentation+"/"+p.application, func(t *testing.T) {
					<-p.ended
					require.NoError(t, p.err, p.service)
					found := c.compare(t, p)
					for i, scenario := range p.told {
						t.Run(scenario.Scenario, func(t *testing.T) {
							require.NoError(t, found.wrong[i], "traces %v", found.traces(scenario))
						})
					}
					for _, i := range found.needed {
						needed[i] = true
					}
					assert.Empty(t, found.top, "/api/v1/top does not say what the runs say")
				})
			}
			if t.Failed() {
				return
			}
			for i, cell := range cells {
				assert.True(t, needed[i] || !matches(cell.ecosystem, e.name), "no scenario needs the cell %+v any more", cell)
			}
		})
	}
}

// collector is the one that the applications send to.
type collector struct{ *collectortest.Collector }

// program is one process, which runs all scenarios of an application.
type program struct {
	ecosystem, instrumentation, application, service string

	ended   chan struct{}
	told    []counted // after ended
	err     error
	endedAt time.Time
}

// runAll starts all applications of an ecosystem, some at the same time.
func (c collector) runAll(t *testing.T, e ecosystem) []*program {
	t.Helper()
	folder, installed := install(t, e)
	var programs []*program
	var running sync.WaitGroup
	slots := make(chan struct{}, atOnce)
	for _, application := range e.applications {
		for _, instrumentation := range e.instrumentations {
			if e.leftOut(instrumentation, application) {
				continue
			}
			p := &program{
				ecosystem: e.name, instrumentation: instrumentation, application: application,
				service: strings.Join([]string{e.name, instrumentation, application}, "-"),
				ended:   make(chan struct{}),
			}
			programs = append(programs, p)
			cmd := e.command(folder, installed, application, "--instrumentation", instrumentation)
			running.Go(func() {
				slots <- struct{}{}
				defer func() { <-slots }()
				defer close(p.ended)
				p.told, p.err = c.run(cmd, p.service)
				p.endedAt = time.Now()
			})
		}
	}
	t.Cleanup(running.Wait)
	return programs
}

// install makes an ecosystem's examples ready to run, or skips the test where their
// language is missing.
func install(t *testing.T, e ecosystem) (folder, installed string) {
	t.Helper()
	for _, program := range e.needs {
		if _, err := exec.LookPath(program); err != nil {
			require.Empty(t, os.Getenv("CI"), "%s is missing: %v", program, err)
			t.Skipf("%s is missing, so the examples in %s are not tested", program, e.name)
		}
	}
	folder, err := filepath.Abs(filepath.Join("..", "..", "examples", e.name))
	require.NoError(t, err)
	setup := exec.Command("bash", "setup.sh", e.name)
	var errs bytes.Buffer
	setup.Stderr = &errs
	out, err := setup.Output()
	require.NoError(t, err, "install what %s needs:\n%s", folder, errs.String())
	installed = strings.TrimSpace(string(out))
	if e.name != "javascript" {
		return folder, installed
	}
	// Node looks for modules beside the program, so a copy of the program stands there.
	beside := t.TempDir()
	require.NoError(t, os.CopyFS(beside, os.DirFS(folder)))
	require.NoError(t, os.RemoveAll(filepath.Join(beside, "node_modules")))
	require.NoError(t, os.Symlink(filepath.Join(installed, "node_modules"), filepath.Join(beside, "node_modules")))
	return folder, beside
}

// run runs an application to its end and returns what it counted.
func (c collector) run(cmd *exec.Cmd, service string) ([]counted, error) {
	cmd.Env = append(os.Environ(),
		"OTEL_SERVICE_NAME="+service, "OTEL_EXPORTER_OTLP_ENDPOINT=http://"+c.HTTP, "LANGFUSE_BASE_URL=http://"+c.Langfuse,
		"PYTHONDONTWRITEBYTECODE=1")
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%w\n%s", err, errs.String())
	}
	var told []counted
	if err := json.Unmarshal(out, &told); err != nil {
		return nil, fmt.Errorf("read what it counted: %w\n%s", err, out)
	}
	if len(told) == 0 {
		return nil, errors.New("it ran no scenario")
	}
	return told, nil
}

// found is what the ledger says of one program, and what is wrong with it.
type found struct {
	runs   []answer.Run
	wrong  []error  // per scenario
	top    []string // how top differs from the runs
	needed []int    // cells
}

// compare waits until the ledger says what the application counted.
func (c collector) compare(t *testing.T, p *program) found {
	t.Helper()
	for deadline := p.endedAt.Add(appearWithin); ; time.Sleep(500 * time.Millisecond) {
		f, err := c.look(t.Context(), p)
		if time.Now().After(deadline) {
			require.NoError(t, err)
			return f
		}
		if err == nil && len(f.top) == 0 && errors.Join(f.wrong...) == nil {
			return f
		}
	}
}

// look compares once.
func (c collector) look(ctx context.Context, p *program) (found, error) {
	var f found
	var all answer.Runs
	if err := c.Get(ctx, "/api/v1/runs?limit=0&service="+p.service, &all); err != nil {
		return f, err
	}
	sum := numbers{}
	for _, summary := range all.Runs {
		var run answer.Run
		if err := c.Get(ctx, "/api/v1/runs/"+summary.TraceIDs[0], &run); err != nil {
			return f, err
		}
		f.runs = append(f.runs, run)
		sum.addRun(run)
	}
	top, err := c.fromTop(ctx, p.service)
	if err != nil {
		return f, err
	}
	f.top = differences(top, perStep(sum))
	for _, scenario := range p.told {
		f.wrong = append(f.wrong, f.check(p, scenario))
	}
	return f, nil
}

// check compares the runs of one scenario with what it counted.
func (f *found) check(p *program, scenario counted) error {
	got, want := numbers{}, scenario.expected()
	for _, run := range f.runs {
		if scenario.holds(run) {
			got.addRun(run)
		}
	}
	var wrong []error
	for _, name := range union(got, want) {
		if number(got, name) == number(want, name) {
			continue
		}
		if i, excused := excuse(p, scenario, name, got[name], want[name]); excused {
			f.needed = append(f.needed, i)
			continue
		}
		wrong = append(wrong, fmt.Errorf("%s: %s, and the application counted %s", name, number(got, name), number(want, name)))
	}
	return errors.Join(wrong...)
}

func (f *found) traces(scenario counted) (traces []string) {
	for _, run := range f.runs {
		if scenario.holds(run) {
			traces = append(traces, run.TraceIDs...)
		}
	}
	return traces
}
