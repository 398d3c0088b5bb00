package attributor

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"go.opentelemetry.io/collector/component"

	"github.com/retryledger/retryledger/analysis/attribution"
	"github.com/retryledger/retryledger/internal/ledgerstore"
)

// Config says which store is accounted for, how often and against which limits.
type Config struct {
	// Store is the extension that keeps spans and ledger.
	Store component.ID `mapstructure:"store"`
	// Interval is the time between two looks for runs that received spans.
	Interval time.Duration `mapstructure:"interval"`

	// RunLimit is the retry budget of a run.
	RunLimit int `mapstructure:"run_limit"`
	// StepLimit is the retry budget of a step within a run.
	StepLimit int `mapstructure:"step_limit"`
	// StepLimits are budgets of steps by their names, instead of StepLimit.
	StepLimits map[string]int `mapstructure:"step_limits"`
	// OrphanAfter is the silence after which a run whose root never came is
	// orphaned and no longer running.
	OrphanAfter time.Duration `mapstructure:"orphan_after"`
	// MaxResumes is the number of deliveries without completion that make a run
	// a poison pill.
	MaxResumes int `mapstructure:"max_resumes"`
	// JoinWindow is how far apart traces of one explicit run id may be.
	JoinWindow time.Duration `mapstructure:"join_window"`
	// IdleLimit is the gap that ends a run of steps which are traces of their own.
	IdleLimit time.Duration `mapstructure:"idle_limit"`

	// MaxSpansPerRun bounds memory: larger traces are kept but not accounted for.
	MaxSpansPerRun int `mapstructure:"max_spans_per_run"`
	// MaxTracesPerRun bounds what one run id may join.
	MaxTracesPerRun int `mapstructure:"max_traces_per_run"`
	// BatchTraces is how many traces are read and written at once.
	BatchTraces int `mapstructure:"batch_traces"`
}

func createDefaultConfig() component.Config { return defaultConfig() }

func defaultConfig() *Config {
	limits := attribution.Defaults()
	return &Config{
		Store:           component.NewID(ledgerstore.Type),
		Interval:        time.Second,
		RunLimit:        limits.RunLimit,
		StepLimit:       limits.StepLimit,
		OrphanAfter:     time.Duration(limits.OrphanAfterNs),
		MaxResumes:      limits.MaxResumes,
		JoinWindow:      time.Duration(limits.JoinWindowNs),
		IdleLimit:       time.Duration(limits.IdleLimitNs),
		MaxSpansPerRun:  200_000,
		MaxTracesPerRun: 1000,
		BatchTraces:     500,
	}
}

// Validate says what is wrong and how to mend it.
func (c *Config) Validate() error {
	var errs []error
	if c.Store == (component.ID{}) {
		errs = append(errs, fmt.Errorf("store is empty: name the extension that keeps the ledger, usually %s", ledgerstore.Type))
	}
	if c.Interval < 50*time.Millisecond || c.Interval > time.Minute {
		errs = append(errs, fmt.Errorf("interval is %s: use a time between 50ms and 1m; the ledger shows a run about two intervals after its last span", c.Interval))
	}
	atLeast := func(name string, value, least int) {
		if value < least {
			errs = append(errs, fmt.Errorf("%s is %d: use %d or more", name, value, least))
		}
	}
	atLeast("run_limit", c.RunLimit, 1)
	atLeast("step_limit", c.StepLimit, 1)
	steps := make([]string, 0, len(c.StepLimits))
	for step := range c.StepLimits {
		steps = append(steps, step)
	}
	slices.Sort(steps)
	for _, step := range steps {
		if step == "" {
			errs = append(errs, errors.New("step_limits has an entry without a name: write the step's name before its limit"))
		}
		atLeast("step_limits::"+step, c.StepLimits[step], 1)
	}
	if c.OrphanAfter < time.Second {
		errs = append(errs, fmt.Errorf("orphan_after is %s: use at least 1s; spans of a run that still works may be that far apart", c.OrphanAfter))
	}
	atLeast("max_resumes", c.MaxResumes, 1)
	if c.JoinWindow < 0 {
		errs = append(errs, fmt.Errorf("join_window is %s: use 0s (traces of one run id never join across a gap) or more", c.JoinWindow))
	}
	if c.IdleLimit < 0 {
		errs = append(errs, fmt.Errorf("idle_limit is %s: use 0s (steps that are traces of their own never join) or more", c.IdleLimit))
	}
	atLeast("max_spans_per_run", c.MaxSpansPerRun, 1000)
	atLeast("max_traces_per_run", c.MaxTracesPerRun, 1)
	atLeast("batch_traces", c.BatchTraces, 1)
	return errors.Join(errs...)
}

// options are the limits for one judgement at the given instant.
func (c *Config) options(now time.Time) attribution.Options {
	o := attribution.Defaults()
	o.AtNs = now.UnixNano()
	o.RunLimit, o.StepLimit, o.StepLimits = c.RunLimit, c.StepLimit, c.StepLimits
	o.OrphanAfterNs, o.MaxResumes, o.JoinWindowNs = int64(c.OrphanAfter), c.MaxResumes, int64(c.JoinWindow)
	o.IdleLimitNs = int64(c.IdleLimit)
	return o
}
