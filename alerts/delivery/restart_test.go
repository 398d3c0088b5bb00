package delivery

import (
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// silenceFor silences alerts of a name through the API at url.
func silenceFor(tb testing.TB, url, name string) {
	tb.Helper()
	now := time.Now().UTC()
	request(tb, http.MethodPost, url+"/api/v2/silences", `{"matchers":[{"name":"alertname","value":"`+name+`","isRegex":false}],
		"startsAt":"`+now.Format(time.RFC3339)+`","endsAt":"`+now.Add(time.Hour).Format(time.RFC3339)+`","createdBy":"me","comment":"known"}`, http.StatusOK)
}

func TestRestartRepeatsNothingAndLosesNothing(t *testing.T) {
	t.Parallel()
	hook := newWebhook(t)
	d := start(t, hook.config(""))
	before, ends := firing("Before"), firing("EndsMeanwhile")
	d.put(t, before, ends)
	hook.waitFor(t, "firing Before")
	hook.waitFor(t, "firing EndsMeanwhile")
	d.logged(t, 2)
	silenceFor(t, d.url(""), "Quiet")

	d.restart(t)
	d.put(t, firing("Quiet"), before, resolved(ends), firing("After"))
	hook.waitFor(t, "firing After")
	hook.waitFor(t, "resolved EndsMeanwhile")
	require.Equal(t, map[string]int{
		"firing Before": 1, "firing EndsMeanwhile": 1, "resolved EndsMeanwhile": 1, "firing After": 1,
	}, hook.told())
}

func TestRestartAndReloadLetReceiversAnswer(t *testing.T) {
	t.Parallel()
	hook := newWebhook(t)
	hook.answer(func(*http.Request) int {
		time.Sleep(200 * time.Millisecond)
		return http.StatusOK
	})
	d := start(t, hook.config(""))
	first, second := firing("First"), firing("Second")
	d.put(t, first)
	hook.waitFor(t, "firing First") // and not answered
	require.NoError(t, d.Reload(t.Context()))
	d.put(t, second)
	hook.waitFor(t, "firing Second")
	d.restart(t)
	d.put(t, first, second, firing("Third"))
	hook.waitFor(t, "firing Third")
	require.Equal(t, map[string]int{"firing First": 1, "firing Second": 1, "firing Third": 1}, hook.told())
}

func TestKillsRepeatAtMostOnceEachAndLoseNothing(t *testing.T) {
	t.Parallel()
	hook := newWebhook(t)
	dir := t.TempDir()
	s := childSettings{ConfigFile: filepath.Join(dir, "alertmanager.yml"), DataDir: filepath.Join(dir, "data")}
	write(t, s.ConfigFile, hook.config(""))
	c := startChild(t, &s)
	silenceFor(t, c.url+prefix, "Quiet")
	saved := func(file string) func() bool {
		return func() bool {
			info, err := os.Stat(filepath.Join(s.DataDir, file))
			return err == nil && info.Size() > 0
		}
	}
	require.Eventually(t, saved("silences"), patience, time.Millisecond)
	long := firing("Long")
	c.put(t, long)
	hook.waitFor(t, "firing Long")
	require.Eventually(t, saved("nflog"), patience, time.Millisecond)
	last := firing("Last")
	c.put(t, last)
	hook.waitFor(t, "firing Last")
	c.kill(t) // in the moment it told

	const kills = 2
	for range kills {
		c = startChild(t, &s)
		next := firing("Next")
		next.Labels["round"] = c.url
		count := hook.told()["firing Next"]
		c.put(t, long, last, firing("Quiet"), next)
		require.Eventually(t, func() bool { return hook.told()["firing Next"] > count }, patience, 5*time.Millisecond)
		c.kill(t)
	}
	told := hook.told()
	require.Equal(t, 1, told["firing Long"], "it was saved that this was told")
	require.LessOrEqual(t, told["firing Last"], 1+kills)
	require.Zero(t, told["firing Quiet"], "the silence was saved")
}

func TestDamagedStateIsSetAside(t *testing.T) {
	t.Parallel()
	hook := newWebhook(t)
	d := start(t, hook.config(""))
	a := firing("Again")
	d.put(t, a)
	hook.waitFor(t, "firing Again")
	d.end(t)()
	for _, file := range []string{"nflog", "silences"} {
		write(t, filepath.Join(d.dir, file), "not a snapshot at all")
	}
	d.begin(t)
	d.put(t, a)
	require.Eventually(t, func() bool { return hook.told()["firing Again"] == 2 }, patience, 5*time.Millisecond, "it is not known any more that this was told")
	for _, file := range []string{"nflog.damaged", "silences.damaged"} {
		require.FileExists(t, filepath.Join(d.dir, file))
	}
}

func TestStateIsWrittenWhenItChanges(t *testing.T) {
	t.Parallel()
	d := start(t, defaultConfig)
	path := filepath.Join(d.dir, "silences")
	require.Eventually(t, func() bool { _, err := os.Stat(path); return err == nil }, patience, time.Millisecond)
	silenceFor(t, d.url(""), "One")
	silenceFor(t, d.url(""), "Two")
	silenceFor(t, d.url(""), "Three")
	e := inside(t, d)
	s := newSaver(filepath.Join(t.TempDir(), "copy"), e.silences, e.logger)
	require.NoError(t, s.save())
	first, err := os.Stat(s.path)
	require.NoError(t, err)
	require.NotZero(t, first.Size())
	for range 20 { // in another order each time, as Go's maps have it
		require.NoError(t, s.save())
		again, err := os.Stat(s.path)
		require.NoError(t, err)
		require.True(t, os.SameFile(first, again))
	}
	silenceFor(t, d.url(""), "Four")
	require.NoError(t, s.save())
	changed, err := os.Stat(s.path)
	require.NoError(t, err)
	require.False(t, os.SameFile(first, changed))
}

func TestDataFolderThatCannotBeMade(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	write(t, file, "")
	cfg := NewDefaultConfig()
	d, err := New(&cfg, settings(t, filepath.Join(file, "data")))
	require.NoError(t, err)
	require.ErrorContains(t, d.Start(t.Context(), nil), "make the folder")
	require.NoError(t, d.Shutdown(t.Context()))
}
