package ruletest_test

import (
	"io"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryledger/retryledger/alerts/rules"
	"github.com/retryledger/retryledger/alerts/rules/ruletest"
	"github.com/retryledger/retryledger/alerts/signals"
)

// TestDocs: what docs/alert-rules.md shows works as it says, and it speaks of every
// signal and fact.
func TestDocs(t *testing.T) {
	t.Parallel()
	const folder = "../../../docs/"
	content, err := os.ReadFile(folder + "alert-rules.md")
	require.NoError(t, err)
	page := string(content)
	var blocks []string
	for i, part := range strings.Split(page, "```") {
		if i%2 == 1 {
			blocks = append(blocks, part)
		}
	}
	require.Len(t, blocks, 5)
	file, tests := strings.TrimPrefix(blocks[0], "yaml\n"), strings.TrimPrefix(blocks[2], "yaml\n")
	_, err = rules.Load("rules.yaml", []byte(strings.Replace(file, "25 %", "0.02", 1)))
	require.ErrorContains(t, err, strings.TrimPrefix(strings.TrimSpace(strings.Split(blocks[1], "\n")[2]), "retryledger: "))

	suite, err := ruletest.Load("rules_test.yaml", []byte(tests), func(name string) (io.ReadCloser, error) {
		require.Equal(t, "rules.yaml", name)
		return io.NopCloser(strings.NewReader(file)), nil
	})
	require.NoError(t, err)
	results, err := suite.Run(t.Context())
	require.NoError(t, err)
	require.Len(t, results, 1)
	assert.Empty(t, results[0].Failures)
	assert.Contains(t, blocks[3], results[0].Name)

	defined, err := os.ReadFile(folder + "signals.md")
	require.NoError(t, err)
	for _, s := range signals.All() {
		assert.Contains(t, page, "["+string(s)+"](signals.md#"+string(s)+")")
		assert.Contains(t, string(defined), "\n### "+string(s)+"\n", "the link's target")
	}
	facts := reflect.TypeFor[rules.Facts]()
	for i := range facts.NumField() {
		assert.Contains(t, page, "`."+facts.Field(i).Name)
	}
	for _, s := range []signals.Signal{rules.EvaluationStalled, rules.IngestStalled} {
		assert.Contains(t, page, "`"+string(s)+"`")
	}
}
