package apps

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
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
	needs            [][]string // commands that succeed where the language is there
	requirements     string     // the file that says what is installed
	instrumentations []string
	applications     []string
	lossy            string // host:port of what stands before the collector and loses spans, if any
	// leftOut tells whether an application is nothing for an instrumentation.
	leftOut func(instrumentation, application string) bool
	command func(folder, installed string, args ...string) *exec.Cmd
}

var ecosystems = []ecosystem{
	{
		name:             "python",
		needs:            [][]string{{"python3", "-c", "import ensurepip, venv"}},
		requirements:     "requirements.txt",
		instrumentations: []string{"openinference", "openllmetry", "langsmith", "langfuse", "langfuse-everything", "plain"},
		applications:     []string{"calls", "graphs", "agents", "resume", "contracts", "budget"},
		leftOut: func(instrumentation, application string) bool {
			return application == "budget" && instrumentation != "plain" || onlyMore(instrumentation, application)
		},
		command: func(folder, installed string, args ...string) *exec.Cmd {
			cmd := exec.Command(filepath.Join(installed, "bin", "python"), append([]string{"run.py", "--json"}, args...)...)
			cmd.Dir = folder
			return cmd
		},
	},
	{
		name:             "javascript",
		needs:            [][]string{{"node", "--version"}, {"npm", "--version"}},
		requirements:     "package.json",
		instrumentations: []string{"openinference", "langfuse", "langfuse-everything", "plain"},
		applications:     []string{"calls", "graphs", "agents", "resume", "contracts", "ai-sdk"},
		leftOut: func(instrumentation, application string) bool {
			return application == "ai-sdk" && instrumentation == "openinference" || onlyMore(instrumentation, application)
		},
		command: func(_, installed string, args ...string) *exec.Cmd {
			cmd := exec.Command("node", append([]string{"--no-warnings", "run.mjs", "--json"}, args...)...)
			cmd.Dir = installed
			return cmd
		},
	},
}

// onlyMore: with everything Langfuse's processor also sends the application's own spans,
// and these applications have none.
func onlyMore(instrumentation, application string) bool {
	return instrumentation == "langfuse-everything" && application != "contracts" && application != "ai-sdk"
}

// collector is the one that the applications send to.
type collector struct{ *collectortest.Collector }

// What the ledger says of real applications is what these counted themselves.
func TestLedgerEqualsCounters(t *testing.T) {
	c := collector{collectortest.Start(t, collectortest.NewPlace(t))}
	defer c.Stop()
	for _, e := range ecosystems {
		t.Run(e.name, func(t *testing.T) { c.test(t, e) })
	}
}

// test compares all programs of an ecosystem with the ledger, and requires that each
// cell for them is needed.
func (c collector) test(t *testing.T, e ecosystem) {
	t.Helper()
	needed := map[int]bool{}
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
		if matches(cell.ecosystem, e.name) && cell.lossy == (e.lossy != "") {
			assert.True(t, needed[i], "no scenario needs the cell %+v any more", cell)
		}
	}
}

// program is one process, which runs all scenarios of an application.
type program struct {
	ecosystem, instrumentation, application, service string
	lossy                                            bool

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
	otlp, langfuse := c.HTTP, c.Langfuse
	if e.lossy != "" {
		otlp, langfuse = e.lossy, e.lossy
	}
	slots := make(chan struct{}, atOnce)
	for _, application := range e.applications {
		for _, instrumentation := range e.instrumentations {
			if e.leftOut(instrumentation, application) {
				continue
			}
			p := &program{
				ecosystem: e.name, instrumentation: instrumentation, application: application,
				service: strings.Join([]string{e.name, instrumentation, application}, "-"),
				lossy:   e.lossy != "",
				ended:   make(chan struct{}),
			}
			programs = append(programs, p)
			cmd := e.command(folder, installed, application, "--instrumentation", instrumentation)
			cmd.Env = append(os.Environ(), "OTEL_SERVICE_NAME="+p.service,
				"OTEL_EXPORTER_OTLP_ENDPOINT=http://"+otlp, "LANGFUSE_BASE_URL=http://"+langfuse, "PYTHONDONTWRITEBYTECODE=1")
			running.Go(func() {
				slots <- struct{}{}
				defer func() { <-slots }()
				defer close(p.ended)
				p.told, p.err = run(cmd)
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
	for _, command := range e.needs {
		out, err := exec.Command(command[0], command[1:]...).CombinedOutput()
		if err == nil {
			continue
		}
		require.Empty(t, os.Getenv("CI"), "%q does not work here: %v\n%s", command, err, out)
		t.Skipf("%q does not work here, so the examples in %s are not tested: %v", command, e.name, err)
	}
	folder, err := filepath.Abs(filepath.Join("..", "..", "examples", e.name))
	require.NoError(t, err)
	installed = installOnce(t, folder, e)
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

// installOnce installs what an ecosystem's examples need in the user's cache, so that a
// clean checkout finds it there; another version of the examples has a folder of its own.
func installOnce(t *testing.T, folder string, e ecosystem) string {
	t.Helper()
	requirements, err := os.ReadFile(filepath.Join(folder, e.requirements))
	require.NoError(t, err)
	cache, err := os.UserCacheDir()
	require.NoError(t, err)
	installed := filepath.Join(cache, "retryledger", "examples", fmt.Sprintf("%s-%08x", e.name, crc32.ChecksumIEEE(requirements)))
	require.NoError(t, os.MkdirAll(installed, 0o750))
	lock, err := os.Create(installed + ".lock") // one test at a time
	require.NoError(t, err)
	defer func() { _ = lock.Close() }()
	require.NoError(t, syscall.Flock(int(lock.Fd()), syscall.LOCK_EX))
	out, err := exec.Command("bash", filepath.Join(folder, "install.sh"), installed).CombinedOutput()
	require.NoError(t, err, "install what %s needs:\n%s", folder, out)
	return installed
}

// run runs an application to its end and returns what it counted.
func run(cmd *exec.Cmd) ([]counted, error) {
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
