package delivery

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestReloadTakesTheNewConfiguration(t *testing.T) {
	t.Parallel()
	first, second := newWebhook(t), newWebhook(t)
	d := start(t, first.config(""))
	d.put(t, firing("Same"))
	first.waitFor(t, "firing Same")
	d.logged(t, 1)

	require.NoError(t, d.Reload(context.Background()))
	d.put(t, firing("Next"))
	first.waitFor(t, "firing Next")
	d.logged(t, 2)
	require.Equal(t, 1, first.told()["firing Same"], "a reload repeats nothing")

	write(t, d.file, "receivers:\n  - name: other\n    webhook_configs: [{url: "+second.URL+"}]\nroute: {receiver: other, group_wait: 0s, group_by: ['...']}\n")
	require.NoError(t, d.Reload(context.Background()))
	second.waitFor(t, "firing Same") // what fires is told to whom it concerns now
	d.put(t, firing("Later"))
	second.waitFor(t, "firing Later")
	require.Zero(t, first.told()["firing Later"])
	require.Contains(t, request(t, http.MethodGet, d.url("/api/v2/receivers"), "", http.StatusOK), `"name":"other"`)
}

func TestReloadOfAMistakeChangesNothing(t *testing.T) {
	t.Parallel()
	hook := newWebhook(t)
	d := start(t, hook.config(""))
	for _, mistake := range []string{
		"", "route: {receiver: nobody}", hook.config("group_interval: 1s"), hook.config("") + "templates: [/nowhere/[]\n",
	} {
		write(t, d.file, mistake)
		err := d.Reload(context.Background())
		require.ErrorContains(t, err, d.file)
		require.Equal(t, err.Error(), d.Status().ConfigError)
		require.True(t, d.Status().Ready)
		require.Zero(t, metric(t, d.Metrics(), "alertmanager_config_last_reload_successful"))
	}
	d.put(t, firing("Still"))
	hook.waitFor(t, "firing Still")
	write(t, d.file, hook.config(""))
	require.NoError(t, d.Reload(context.Background()))
	require.Empty(t, d.Status().ConfigError)
	require.InDelta(t, 1, metric(t, d.Metrics(), "alertmanager_config_last_reload_successful"), 0)
}

func TestReloadWhileAReceiverHangs(t *testing.T) {
	t.Parallel()
	hook := newWebhook(t)
	release := make(chan struct{})
	hook.answer(func(r *http.Request) int {
		select {
		case <-release:
		case <-r.Context().Done():
		}
		return http.StatusOK
	})
	d := start(t, hook.config(""))
	d.put(t, firing("Stuck"))
	hook.waitFor(t, "firing Stuck")
	before := len(hook.notifications())
	require.NoError(t, d.Reload(context.Background()))
	// What was interrupted is told again.
	require.Eventually(t, func() bool { return len(hook.notifications()) > before }, patience, 5*time.Millisecond)
	close(release)
}
