package ingest

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/confmap"

	"github.com/retryledger/retryledger/ingest/dialect"
)

// Config is the configuration of the exporter `retryledger`.
type Config struct {
	// Store is the id of the extension that owns the store.
	Store component.ID `mapstructure:"store"`

	// MaxStepNames is how many names the steps of one service may have at a time, and
	// its spans as many. Further ones are kept as "(other)".
	MaxStepNames int `mapstructure:"max_step_names"`

	// OutputTests say which outputs tell that a step failed whose span ended well. The
	// first that fits a step counts; of steps that none fits the built-in tests do.
	OutputTests []dialect.OutputTests `mapstructure:"output_tests"`

	Journal     JournalConfig     `mapstructure:"journal"`
	Writer      WriterConfig      `mapstructure:"writer"`
	DeadLetters DeadLettersConfig `mapstructure:"dead_letters"`
}

// JournalConfig says where acknowledged spans wait for the store.
type JournalConfig struct {
	// Directory of the journal. Empty: "journal" in the store's data folder.
	Directory string `mapstructure:"directory"`
	// MaxSizeMiB is how much may wait. When it is reached new spans are
	// refused with an error that makes senders try again.
	MaxSizeMiB int64 `mapstructure:"max_size_mib"`
	// SegmentSizeMiB is the size of one file; space is given back by the file.
	SegmentSizeMiB int64 `mapstructure:"segment_size_mib"`
	// MinFreeDiskMiB is what the disk must keep free; below it new spans are refused.
	MinFreeDiskMiB int64 `mapstructure:"min_free_disk_mib"`
	// GroupWindow is how long an fsync waits for more requests. Requests that
	// come while one fsync runs share the next one in any case.
	GroupWindow time.Duration `mapstructure:"group_window"`
}

// WriterConfig says how the journal is emptied into the store.
type WriterConfig struct {
	// BatchRows is how many rows an insert has when enough wait.
	BatchRows int `mapstructure:"batch_rows"`
	// FlushInterval is how long a row waits for others at most.
	FlushInterval time.Duration `mapstructure:"flush_interval"`
	// InsertTimeout ends one attempt; the next one follows.
	InsertTimeout time.Duration `mapstructure:"insert_timeout"`
	// RetryInitialInterval and RetryMaxInterval bound the growing, jittered
	// wait between attempts. Attempts never end.
	RetryInitialInterval time.Duration `mapstructure:"retry_initial_interval"`
	RetryMaxInterval     time.Duration `mapstructure:"retry_max_interval"`
	// ShutdownTimeout is how long a shutdown goes on inserting. What remains
	// then stays in the journal.
	ShutdownTimeout time.Duration `mapstructure:"shutdown_timeout"`
}

// DeadLettersConfig bounds what is kept of spans that cannot be kept.
type DeadLettersConfig struct {
	// MaxSizeMiB bounds the file dead-letters.jsonl and its predecessor
	// together, and on its own what the journal sets aside because of damage.
	MaxSizeMiB int64 `mapstructure:"max_size_mib"`
}

var _ confmap.Validator = (*Config)(nil)

func createDefaultConfig() component.Config { return defaultConfig() }

func defaultConfig() *Config {
	return &Config{
		Store:        component.MustNewID("retryledger_store"),
		MaxStepNames: 1000,
		Journal: JournalConfig{
			MaxSizeMiB:     4096,
			SegmentSizeMiB: 64,
			MinFreeDiskMiB: 512,
		},
		Writer: WriterConfig{
			BatchRows:            20_000,
			FlushInterval:        200 * time.Millisecond,
			InsertTimeout:        time.Minute,
			RetryInitialInterval: 100 * time.Millisecond,
			RetryMaxInterval:     10 * time.Second,
			ShutdownTimeout:      5 * time.Second,
		},
		DeadLetters: DeadLettersConfig{MaxSizeMiB: 64},
	}
}

// Validate says what is wrong, and how to mend it, in a sentence each.
func (c *Config) Validate() error {
	var errs []error
	wrong := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	wrong(c.Store == component.ID{}, "store must name the extension that owns the store, such as retryledger_store")
	wrong(c.MaxStepNames < 1 || c.MaxStepNames > 100_000, "max_step_names is %d and must be from 1 to 100000", c.MaxStepNames)
	j, w := c.Journal, c.Writer
	wrong(j.SegmentSizeMiB < 1, "journal::segment_size_mib is %d and must be at least 1", j.SegmentSizeMiB)
	wrong(j.SegmentSizeMiB > 1024, "journal::segment_size_mib is %d and must be at most 1024: disk space is given back by the segment", j.SegmentSizeMiB)
	wrong(j.MaxSizeMiB < 2*j.SegmentSizeMiB, "journal::max_size_mib is %d and must hold at least two segments, which is %d", j.MaxSizeMiB, 2*j.SegmentSizeMiB)
	wrong(j.MaxSizeMiB > 1<<30, "journal::max_size_mib is %d and must be at most %d", j.MaxSizeMiB, 1<<30)
	wrong(j.MinFreeDiskMiB < 0, "journal::min_free_disk_mib is %d and must not be negative; 0 means no floor", j.MinFreeDiskMiB)
	wrong(j.MinFreeDiskMiB > 1<<30, "journal::min_free_disk_mib is %d and must be at most %d", j.MinFreeDiskMiB, 1<<30)
	wrong(j.GroupWindow < 0 || j.GroupWindow > time.Second, "journal::group_window is %s and must be from 0s to 1s: every sender waits that long", j.GroupWindow)
	wrong(w.BatchRows < 1 || w.BatchRows > 1_000_000, "writer::batch_rows is %d and must be from 1 to 1000000", w.BatchRows)
	wrong(w.FlushInterval <= 0 || w.FlushInterval > time.Minute, "writer::flush_interval is %s and must be above 0s and at most 1m", w.FlushInterval)
	wrong(w.InsertTimeout <= 0, "writer::insert_timeout is %s and must be above 0s", w.InsertTimeout)
	wrong(w.RetryInitialInterval <= 0, "writer::retry_initial_interval is %s and must be above 0s", w.RetryInitialInterval)
	wrong(w.RetryMaxInterval < w.RetryInitialInterval, "writer::retry_max_interval is %s and must be at least writer::retry_initial_interval, which is %s", w.RetryMaxInterval, w.RetryInitialInterval)
	wrong(w.ShutdownTimeout < 0, "writer::shutdown_timeout is %s and must not be negative", w.ShutdownTimeout)
	wrong(c.DeadLetters.MaxSizeMiB < 1 || c.DeadLetters.MaxSizeMiB > 1<<20, "dead_letters::max_size_mib is %d and must be from 1 to %d", c.DeadLetters.MaxSizeMiB, 1<<20)
	for i, set := range c.OutputTests {
		wrong(set.Tests == nil, "output_tests::%d has no tests: write those that replace the built-in ones, or [] if no output tells a failure", i)
		for k, test := range set.Tests {
			wrong(test.Key == "" && len(test.Is) == 0, "output_tests::%d::tests::%d names neither a key nor, under is, the texts that the whole output may be", i, k)
			wrong(slices.Contains(test.Is, ""), "output_tests::%d::tests::%d has an empty text under is", i, k)
		}
	}
	return errors.Join(errs...)
}
