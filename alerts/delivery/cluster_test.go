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
// before it tells anybody, a second if settings say nothing.
func pair(tb testing.TB, hook *webhook, settings childSettings) (leader, follower *child) {
	tb.Helper()
	dir := tb.TempDir()
	file := filepath.Join(dir, "alertmanager.yml")
	write(tb, file, hook.config(""))
	addresses := porttest.Free(tb, 2)
	var processes []*child
	for i, a := range addresses {
		settings.ConfigFile, settings.DataDir, settings.Bind, settings.Peers = file, filepath.Join(dir, fmt.Sprint("data", i)), a, addresses
		processes = append(processes, startChild(tb, &settings))
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
	leader, follower := pair(t, hook, childSettings{})
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

// What the follower sees an evaluation before the leader is told by the leader alone, if a receiver answers it within
// the peer timeout.
func TestLeaderThatSeesABreachLaterTellsAlone(t *testing.T) {
	t.Parallel()
	hook := newWebhook(t)
	const timeout, interval = 4 * time.Second, 6 * time.Second
	leader, follower := pair(t, hook, childSettings{PeerTimeout: timeout, EvaluationInterval: interval})
	var answered atomic.Bool
	hook.answer(func(*http.Request) int {
		if !answered.Swap(true) {
			time.Sleep(timeout / 2)
		}
		return http.StatusOK
	})
	began := time.Now()
	follower.put(t, firing("A"))
	time.Sleep(interval - timeout/2) // within the interval; with the answer it ends after the timeout
	leader.put(t, firing("A"))
	hook.waitFor(t, "firing A")
	// The follower's turn comes; an alert that only it has shows that it did.
	time.Sleep(time.Until(began.Add(interval + timeout)))
	follower.put(t, firing("Follower"))
	hook.waitFor(t, "firing Follower")
	require.Equal(t, map[string]int{"firing A": 1, "firing Follower": 1}, hook.told())
}

func TestEachCollectorWaitsForThoseBeforeIt(t *testing.T) {
	t.Parallel()
	cfg, set := NewDefaultConfig(), settings(t, t.TempDir())
	set.EvaluationInterval = 3 * time.Second
	e := newEmbedded(&cfg, set, mustURL("http://localhost"))
	for position, want := range []time.Duration{0, 4 * time.Second, 8 * time.Second} {
		require.Equal(t, want, e.waitAt(position))
	}
	require.Zero(t, e.wait(), "alone")
}

func TestKillOfTheLeaderInMidSendLosesNothing(t *testing.T) {
	t.Parallel()
	hook := newWebhook(t)
	leader, follower := pair(t, hook, childSettings{})
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
