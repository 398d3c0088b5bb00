package alerter

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryledger/retryledger/alerts/rules"
)

const (
	fivePercent = "rules: [{name: step_errors, threshold: 5 %}]\n"
	ninePercent = "rules: [{name: step_errors, threshold: 9 %}]\n"
	mistake     = "rules: [{name: step_errors, threshold: five}]\n"
)

func write(t testing.TB, path, content string) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
}

func threshold(t *testing.T, set *rules.Set) string {
	t.Helper()
	require.NotNil(t, set)
	for _, r := range set.Rules() {
		if r.Name == "step_errors" {
			return r.Threshold.String()
		}
	}
	require.Fail(t, "no rule step_errors")
	return ""
}

func TestRulesFile(t *testing.T) {
	f := &rulesFile{path: filepath.Join(t.TempDir(), "rules.yaml")}
	_, err := f.load()
	require.ErrorContains(t, err, f.path)
	require.ErrorContains(t, err, "leave it out")
	write(t, f.path, mistake)
	_, err = f.load()
	require.ErrorContains(t, err, "five")

	write(t, f.path, fivePercent)
	set, err := f.load()
	require.NoError(t, err)
	assert.Equal(t, "5 %", threshold(t, set))
	unchanged := func() {
		t.Helper()
		set, err := f.changed()
		require.NoError(t, err)
		assert.Nil(t, set)
	}
	changed := func(want string) {
		t.Helper()
		set, err := f.changed()
		require.NoError(t, err)
		assert.Equal(t, want, threshold(t, set))
		assert.Empty(t, f.failure)
		unchanged()
	}
	refused := func(part string) {
		t.Helper()
		_, err := f.changed()
		require.ErrorContains(t, err, part)
		unchanged() // told once
		assert.Contains(t, f.failure, part, "and shown as long as it lasts")
	}
	unchanged()
	write(t, f.path, ninePercent)
	changed("9 %")
	write(t, f.path, mistake)
	refused("five")
	write(t, f.path, strings.Replace(mistake, "five", "six", 1))
	refused("six")
	write(t, f.path, mistake)
	refused("five") // another mistake was between
	write(t, f.path, ninePercent)
	unchanged() // what is in force
	assert.Empty(t, f.failure, "mended")
	require.NoError(t, os.Remove(f.path))
	refused("no such file")
	write(t, f.path, fivePercent)
	changed("5 %")
	write(t, f.path, strings.Repeat("#", rules.MaxFileBytes+1))
	refused("at most 1048576")
}

func TestNoRulesFile(t *testing.T) {
	f := &rulesFile{}
	set, err := f.load()
	require.NoError(t, err)
	assert.Equal(t, "2 %", threshold(t, set))
	set, err = f.changed()
	require.NoError(t, err)
	assert.Nil(t, set)
}
