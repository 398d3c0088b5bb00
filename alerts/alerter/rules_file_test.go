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
		unchanged() // seen once, it may be half written
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
	unchanged()
	refused("five")
	write(t, f.path, strings.Replace(mistake, "five", "six", 1))
	unchanged()
	refused("six")
	write(t, f.path, mistake)
	unchanged()
	refused("five") // another mistake was between
	write(t, f.path, ninePercent)
	unchanged() // what is in force
	assert.Empty(t, f.failure, "mended")
	require.NoError(t, os.Remove(f.path))
	refused("no such file")
	write(t, f.path, fivePercent)
	changed("5 %")
	write(t, f.path, strings.Repeat("#", rules.MaxFileBytes+1))
	unchanged()
	refused("at most 1048576")
}

// What is seen of a file while it is written changes no rule: cp and editors empty it first.
func TestARulesFileThatIsBeingWritten(t *testing.T) {
	f := &rulesFile{path: filepath.Join(t.TempDir(), "rules.yaml")}
	write(t, f.path, fivePercent)
	_, err := f.load()
	require.NoError(t, err)
	look := func() *rules.Set {
		t.Helper()
		set, err := f.changed()
		require.NoError(t, err)
		return set
	}
	for _, half := range []string{"", "rules: []\n", "rules: [{na"} {
		write(t, f.path, half)
		assert.Nil(t, look(), half)
		write(t, f.path, fivePercent)
		assert.Nil(t, look(), half)
		assert.Empty(t, f.failure, half)
	}
	write(t, f.path, "")
	assert.Nil(t, look())
	write(t, f.path, "rules: [] # half\n")
	assert.Nil(t, look())
	write(t, f.path, ninePercent)
	assert.Nil(t, look(), "another than the look before")
	assert.Equal(t, "9 %", threshold(t, look()))

	for _, blank := range []string{"", "# nothing\n", "---\n", "{}\n"} {
		write(t, f.path, blank)
		assert.Nil(t, look())
		_, err := f.changed()
		require.ErrorContains(t, err, "is empty", "%q", blank)
		assert.Nil(t, look(), "told once")
		write(t, f.path, ninePercent)
		assert.Nil(t, look())
		assert.Empty(t, f.failure, "what was in force is there again")
	}
	write(t, f.path, "rules: []\n")
	assert.Nil(t, look())
	assert.Equal(t, "2 %", threshold(t, look()), "the pack alone, when it is said")
}

// A collector may start with an empty file, to be filled later.
func TestAnEmptyRulesFileAtTheStart(t *testing.T) {
	f := &rulesFile{path: filepath.Join(t.TempDir(), "rules.yaml")}
	write(t, f.path, "")
	set, err := f.load()
	require.NoError(t, err)
	assert.Equal(t, "2 %", threshold(t, set))
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
