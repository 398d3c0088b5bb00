package ingest

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/confmap/confmaptest"

	"github.com/retryledger/retryledger/ingest/dialect"
)

// mistakes says for each file what the sentence must contain: the setting, and
// the way out.
var mistakes = map[string][]string{
	"bad_store_empty":                       {"store", "must not be empty"},
	"bad_max_step_names":                    {"max_step_names is 0", "from 1 to 100000"},
	"bad_key_unknown":                       {"journal", "max_size"},
	"bad_segment_small":                     {"journal::segment_size_mib is 0", "at least 1"},
	"bad_segment_large":                     {"journal::segment_size_mib is 2048", "at most 1024"},
	"bad_journal_smaller_than_two_segments": {"journal::max_size_mib is 100", "two segments, which is 128"},
	"bad_journal_max_size":                  {"journal::max_size_mib is 9999999999", "at most"},
	"bad_min_free_negative":                 {"journal::min_free_disk_mib is -1", "0 means no floor"},
	"bad_min_free_large":                    {"journal::min_free_disk_mib is 9999999999", "at most"},
	"bad_group_window":                      {"journal::group_window is 2s", "from 0s to 1s"},
	"bad_batch_rows":                        {"writer::batch_rows is 0", "from 1 to 1000000"},
	"bad_flush_interval":                    {"writer::flush_interval is 0s", "at most 1m"},
	"bad_insert_timeout":                    {"writer::insert_timeout is 0s", "above 0s"},
	"bad_retry_initial_interval":            {"writer::retry_initial_interval is 0s", "above 0s"},
	"bad_retry_max_interval":                {"writer::retry_max_interval is 10s", "which is 30s"},
	"bad_shutdown_timeout":                  {"writer::shutdown_timeout is -1s", "not be negative"},
	"bad_output_tests_missing":              {"output_tests::0 has no tests", "[] if no output"},
	"bad_output_test_of_nothing":            {"output_tests::0::tests::0 names neither a key", "under is"},
	"bad_output_test_empty_text":            {"output_tests::0::tests::0 has an empty text"},
	"bad_dead_letters":                      {"dead_letters::max_size_mib is 0", "from 1"},
}

func TestConfigFiles(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("testdata", "*.yaml"))
	require.NoError(t, err)
	found := 0
	for _, path := range files {
		name := strings.TrimSuffix(filepath.Base(path), ".yaml")
		t.Run(name, func(t *testing.T) {
			conf, err := confmaptest.LoadConf(path)
			require.NoError(t, err)
			config := NewFactory().CreateDefaultConfig()
			if err = conf.Unmarshal(config); err == nil {
				err = confmap.Validate(config)
			}
			if !strings.HasPrefix(name, "bad_") {
				require.NoError(t, err)
				return
			}
			found++
			require.Error(t, err)
			for _, part := range mistakes[name] {
				assert.ErrorContains(t, err, part)
			}
		})
	}
	require.Equal(t, len(mistakes), found, "each mistake has its file")
}

func TestConfigOfEveryKey(t *testing.T) {
	conf, err := confmaptest.LoadConf(filepath.Join("testdata", "full.yaml"))
	require.NoError(t, err)
	config := defaultConfig()
	require.NoError(t, conf.Unmarshal(config))
	assert.Equal(t, &Config{
		Store: component.MustNewIDWithName("retryledger_store", "far"), MaxStepNames: 50,
		Journal: JournalConfig{Directory: "/var/lib/retryledger/journal", MaxSizeMiB: 1024, SegmentSizeMiB: 16,
			GroupWindow: 2 * time.Millisecond},
		Writer: WriterConfig{BatchRows: 5000, FlushInterval: 100 * time.Millisecond, InsertTimeout: 30 * time.Second,
			RetryInitialInterval: time.Second, RetryMaxInterval: time.Minute, ShutdownTimeout: 10 * time.Second},
		DeadLetters: DeadLettersConfig{MaxSizeMiB: 8},
		OutputTests: []dialect.OutputTests{
			{Service: "checkout", Step: "resolve", Tests: []dialect.OutputTest{{Key: "err"}, {Key: "outcome", Is: []string{"gave_up"}}, {Is: []string{"sorry"}}}},
			{Step: "rank", Tests: []dialect.OutputTest{}},
		},
	}, config)
	require.NoError(t, componenttest.CheckConfigStruct(config))
}
