package ruletest_test

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/retryledger/retryledger/alerts/internal/mistaketest"
	"github.com/retryledger/retryledger/alerts/rules/ruletest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func load(t testing.TB, name string, content []byte) (*ruletest.Suite, error) {
	t.Helper()
	return ruletest.Load(name, content, func(other string) (io.ReadCloser, error) {
		return os.Open(filepath.Join(filepath.Dir(name), other))
	})
}

// TestExamples runs the files of tests that users read.
func TestExamples(t *testing.T) {
	t.Parallel()
	for name, tests := range map[string]int{"default_pack": 13, "spans": 4} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join("testdata", name+".yaml")
			content, err := os.ReadFile(path)
			require.NoError(t, err)
			suite, err := load(t, path, content)
			require.NoError(t, err)
			for range 2 { // the second time gives the same
				results, err := suite.Run(t.Context())
				require.NoError(t, err)
				require.Len(t, results, tests)
				for _, r := range results {
					assert.Empty(t, r.Failures, r.Name)
				}
			}
		})
	}
}

func TestMistakes(t *testing.T) {
	t.Parallel()
	mistaketest.Run(t, func(t *testing.T, name string, content []byte) error {
		t.Helper()
		_, err := load(t, name, content)
		return err
	})
}

// TestFailuresAreSaid: what was expected, what came, and what was seen.
func TestFailuresAreSaid(t *testing.T) {
	t.Parallel()
	suite, err := load(t, "t.yaml", []byte(`
tests:
  - name: wrong in every way
    counts:
      - {signal: operation_error_ratio, labels: {service: a, step: s}, failed: 0x60 1x60, total: 10x120}
    expect:
      - {at: 1m, rule: step_errors, alerts: []}
      - at: 90s
        rule: step_errors
        fired: 2
        alerts:
          - {labels: {service: a, step: t, severity: page}}
      - at: 91s
        alerts:
          - {rule: step_errors, labels: {service: a, step: s, severity: page}, failed: 3, annotations: {summary: x}}
      - at: 92s
        rule: fallbacks
        alerts:
          - {labels: {service: a}, state: pending}
`))
	require.NoError(t, err)
	results, err := suite.Run(t.Context())
	require.NoError(t, err)
	require.Len(t, results, 1)
	var said []string
	for _, f := range results[0].Failures {
		said = append(said, f.String())
	}
	assert.Equal(t, []string{
		`line 8, at 1m30s:
    step_errors: expected to have fired 2 times, it fired once
    step_errors: expected firing {service="a", severity="page", step="t"}, it is not
    step_errors: firing {service="a", severity="page", step="s"}, which was not expected
    saw step_errors {service="a", step="s"}: 31 of 910 (3.407 %), firing`,
		`line 13, at 1m31s:
    step_errors {service="a", severity="page", step="s"}: expected 3 of any number, it says 32 of 920
    step_errors {service="a", severity="page", step="s"}: the annotation summary differs
      expected  "x"
      it says   "a: step s failed in 32 of 920 visits (3.48 %) within 2m, above 2 %"
    saw step_errors {service="a", step="s"}: 32 of 920 (3.478 %), firing`,
		`line 16, at 1m32s:
    fallbacks: expected pending {service="a"}, it is not
    saw no data`,
	}, said)
}

// FuzzLoad: no file of tests panics, hangs or reads anything but what it names.
func FuzzLoad(f *testing.F) {
	for _, pattern := range []string{"testdata/*.yaml", "testdata/mistakes/*.yaml"} {
		files, err := filepath.Glob(pattern)
		require.NoError(f, err)
		for _, name := range files {
			content, err := os.ReadFile(name)
			require.NoError(f, err)
			if len(content) < 4<<10 && !strings.Contains(name, "too_many") { // small ones, or it hardly begins
				f.Add(content)
			}
		}
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		suite, err := ruletest.Load("t.yaml", content, func(string) (io.ReadCloser, error) { return nil, os.ErrNotExist })
		if (suite == nil) != (err != nil) {
			t.Fatal("either a suite or an error")
		}
	})
}
