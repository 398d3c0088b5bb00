package delivery

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/retryledger/retryledger/internal/porttest"
)

// pair starts two collectors' deliveries as processes that know of each other. The first one leads: the second waits
// a second before it tells anybody.
func pair(tb testing.TB, hook *webhook) (leader, follower *child) {
	tb.Helper()
	dir := tb.TempDir()
	file := filepath.Join(dir, "alertmanager.yml")
	write(tb, file, hook.config(""))
	addresses := porttest.Free(tb, 2)
	var processes []*child
	for i, a := range addresses {
		processes = append(processes, startChild(tb, &childSettings{
			ConfigFile: file, DataDir: filepath.Join(dir, fmt.Sprint("data", i)), Bind: a, Peers: addresses,
		}))
	}
	for _, c := range processes {
		require.Eventually(tb, func() bool {
			s := c.status(tb)
			return s.Ready && len(s.Peers) == 2
		}, patience, 20*time.Millisecond)
	}
	return processes[0], processes[1]
}

func named(prefix string, n int) (alerts []Alert) {
	for i := range n {
		alerts = append(alerts, firing(fmt.Sprint(prefix, i)))
	}
	return alerts
}

func TestTwoProcessesTellOnce(t *testing.T) {
	t.Parallel()
	hook := newWebhook(t)
	leader, follower := pair(t, hook)
	alerts := named("A", 20)
	leader.put(t, alerts...)
	follower.put(t, alerts...)
	for _, a := range alerts {
		hook.waitFor(t, "firing "+a.Labels["alertname"])
	}
	// The follower's turn comes after a second; an alert that only it has shows that it did.
	follower.put(t, firing("Follower"))
	hook.waitFor(t, "firing Follower")
	require.Len(t, hook.notifications(), 21)

	// What was silenced at one is silenced at the other.
	silenceFor(t, follower.url+prefix, "Quiet")
	require.Eventually(t, func() bool {
		return len(request(t, http.MethodGet, leader.url+prefix+"/api/v2/silences", "", http.StatusOK)) > len("[]\n")
	}, patience, 20*time.Millisecond)

	leader.kill(t)
	after := named("B", 20)
	follower.put(t, append(alerts, after...)...)
	for _, a := range after {
		hook.waitFor(t, "firing "+a.Labels["alertname"])
	}
	follower.put(t, firing("Quiet"), firing("End"))
	hook.waitFor(t, "firing End")
	require.Len(t, hook.notifications(), 42, "twenty, one, twenty and one, each told once: %v", hook.told())
}

func TestKillOfTheLeaderInMidSendLosesNothing(t *testing.T) {
	t.Parallel()
	hook := newWebhook(t)
	leader, follower := pair(t, hook)
	var received atomic.Int32
	hook.answer(func(r *http.Request) int {
		if received.Add(1) <= 10 { // the leader's first ten are never answered
			<-r.Context().Done()
		}
		return http.StatusOK
	})
	alerts := named("A", 20)
	leader.put(t, alerts...)
	require.Eventually(t, func() bool { return len(hook.notifications()) == 20 }, patience, time.Millisecond)
	follower.put(t, alerts...)
	leader.kill(t)
	// The ten that were not answered must be told by the follower, which cannot know that they came.
	require.Eventually(t, func() bool { return len(hook.notifications()) >= 30 }, patience, 5*time.Millisecond)
	for i := range alerts {
		count := hook.told()[fmt.Sprint("firing A", i)]
		require.GreaterOrEqual(t, count, 1)
		require.LessOrEqual(t, count, 2)
	}
}

func TestAddressIsFreeAfterShutdown(t *testing.T) {
	t.Parallel()
	hook := newWebhook(t)
	free := porttest.Free(t, 2)
	own, other := free[0], free[1]
	clustered := func(c *Config, _ *Settings) { c.Cluster.BindAddress, c.Cluster.Peers = own, []string{own, other} }
	d := start(t, hook.config(""), clustered)
	d.put(t, firing("Alone")) // nobody else is there: settling must not hold it back for long
	hook.waitFor(t, "firing Alone")
	require.True(t, d.Status().Ready)
	require.Equal(t, []string{own}, d.Status().Peers)
	for range 2 {
		d.restart(t, clustered)
	}

	cfg, set := NewDefaultConfig(), settings(t, t.TempDir())
	clustered(&cfg, &set)
	second, err := New(&cfg, set)
	require.NoError(t, err)
	require.ErrorContains(t, second.Start(context.Background(), nil), "cluster: listen for peers on "+own)
	require.NoError(t, second.Shutdown(context.Background()))
}

func TestGossipTLSFile(t *testing.T) {
	t.Parallel()
	cfg, set := NewDefaultConfig(), settings(t, t.TempDir())
	free := porttest.Free(t, 2)
	cfg.Cluster.BindAddress, cfg.Cluster.Peers, cfg.Cluster.TLSConfigFile = free[0], free[1:], "nowhere.yml"
	d, err := New(&cfg, set)
	require.NoError(t, err)
	require.ErrorContains(t, d.Start(context.Background(), nil), "tls_config_file nowhere.yml")
}
