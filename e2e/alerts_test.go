package e2e

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/retryledger/retryledger/alerts/breakers"
	"github.com/retryledger/retryledger/alerts/gates"
	"github.com/retryledger/retryledger/alerts/report"
	"github.com/retryledger/retryledger/internal/collectortest"
	"github.com/retryledger/retryledger/internal/porttest"
)

// traffic is runs of one service with one step and one model call each; of the first
// ones the step failed, with its call.
func traffic(service, version string, runs, failed int) ptrace.Traces {
	td := ptrace.NewTraces()
	rs := td.ResourceSpans().AppendEmpty()
	rs.Resource().Attributes().PutStr("service.name", service)
	rs.Resource().Attributes().PutStr("service.version", version)
	spans := rs.ScopeSpans().AppendEmpty().Spans()
	now := time.Now()
	for i := range runs {
		var trace pcommon.TraceID
		_, _ = rand.Read(trace[:]) // never fails
		add := func(id, parent byte, name string) ptrace.Span {
			span := spans.AppendEmpty()
			span.SetTraceID(trace)
			span.SetSpanID(pcommon.SpanID{id})
			if parent != 0 {
				span.SetParentSpanID(pcommon.SpanID{parent})
			}
			span.SetName(name)
			span.SetStartTimestamp(pcommon.NewTimestampFromTime(now.Add(-100 * time.Millisecond)))
			span.SetEndTimestamp(pcommon.NewTimestampFromTime(now.Add(-time.Duration(id) * time.Millisecond)))
			if id > 1 && i < failed {
				span.Status().SetCode(ptrace.StatusCodeError)
				span.Attributes().PutStr("error.type", "InternalServerError")
			}
			return span
		}
		add(1, 0, "pipeline").Attributes().PutBool("run.complete", true)
		add(2, 1, "resolve").Attributes().PutStr("step", "resolve")
		call := add(3, 2, "chat gpt-mock").Attributes()
		call.PutStr("gen_ai.operation.name", "chat")
		call.PutStr("gen_ai.provider.name", "openai")
		call.PutStr("gen_ai.request.model", "gpt-mock")
	}
	return td
}

// receiver is a webhook that notes what it is told, by "status alertname service".
type receiver struct {
	*httptest.Server
	mu   sync.Mutex
	told map[string][]map[string]string // annotations
}

func newReceiver(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{told: map[string][]map[string]string{}}
	r.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, request *http.Request) {
		var n struct {
			Alerts []struct {
				Status              string
				Labels, Annotations map[string]string
			}
		}
		body, _ := io.ReadAll(request.Body)
		_ = json.Unmarshal(body, &n)
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, a := range n.Alerts {
			key := strings.TrimSpace(a.Status + " " + a.Labels["alertname"] + " " + a.Labels["service"])
			r.told[key] = append(r.told[key], a.Annotations)
		}
	}))
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) count(key string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.told[key])
}

func (r *receiver) waitFor(t *testing.T, key string) map[string]string {
	t.Helper()
	eventually(t, appearWithin, func() error {
		if r.count(key) == 0 {
			return fmt.Errorf("not told: %s", key)
		}
		return nil
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.told[key][0]
}

// file is an Alertmanager configuration that tells the receiver.
func (r *receiver) file(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "alertmanager.yml")
	require.NoError(t, os.WriteFile(path, fmt.Appendf(nil,
		"route: {receiver: hook, group_by: ['...'], group_wait: 0s, group_interval: 5s, repeat_interval: 4h}\n"+
			"receivers: [{name: hook, webhook_configs: [{url: %q}]}]\n", r.URL), 0o600))
	return path
}

// amtool builds Alertmanager's command line and returns a function that runs it.
func amtool(t *testing.T) func(args ...string) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "amtool")
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "github.com/prometheus/alertmanager/cmd/amtool").CombinedOutput()
	require.NoError(t, err, string(out))
	return func(args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), binary, args...)
		cmd.Env = append(os.Environ(), "HOME="+t.TempDir()) // no configuration file
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, string(out))
		return string(out)
	}
}

// alert is one rule's on one service.
func (d daemon) alert(rule, service string) (report.Alert, error) {
	var all report.Alerts
	if err := d.Get(context.Background(), report.AlertsPath, &all); err != nil {
		return report.Alert{}, err
	}
	for _, a := range all.Alerts {
		if a.Rule == rule && a.Group.Service == service {
			return a, nil
		}
	}
	return report.Alert{}, fmt.Errorf("no alert of %s on %s: %+v", rule, service, all)
}

// events are a stream's lines; it ends with its context, or with the collector.
func (d daemon) events(ctx context.Context) <-chan string {
	d.t.Helper()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+d.API+breakers.Path+"/stream", http.NoBody)
	require.NoError(d.t, err)
	response, err := http.DefaultClient.Do(request) //nolint:bodyclose // by who reads it
	require.NoError(d.t, err)
	require.Equal(d.t, http.StatusOK, response.StatusCode)
	lines := make(chan string, 10_000)
	go func() {
		defer close(lines)
		defer func() { _ = response.Body.Close() }()
		for s := bufio.NewScanner(response.Body); s.Scan(); {
			lines <- s.Text()
		}
	}()
	return lines
}

func waitForLine(t *testing.T, lines <-chan string, holds ...string) {
	t.Helper()
	timeout := time.After(appearWithin)
	for {
		select {
		case line, ok := <-lines:
			require.True(t, ok, "the stream ended before %q", holds)
			all := true
			for _, text := range holds {
				all = all && strings.Contains(line, text)
			}
			if all {
				return
			}
		case <-timeout:
			require.Fail(t, "the stream never said it", "%q", holds)
		}
	}
}

// From spans to people: told once, with what they need; silenced, shown, reloaded;
// through a kill -9.
func TestAlerts(t *testing.T) {
	hook := newReceiver(t)
	file := hook.file(t)
	rulesFile := filepath.Join(t.TempDir(), "rules.yaml")
	writeRules := func(text string) { require.NoError(t, os.WriteFile(rulesFile, []byte(text), 0o600)) }
	writeRules("rules: []\n")
	t.Setenv("RETRYLEDGER_ALERTMANAGER_FILE", file)
	t.Setenv("RETRYLEDGER_RULES_FILE", rulesFile)
	p := newPlace(t)
	const writeTimeout = 11 * time.Second // of answers that end; a stream outlives it
	short := []string{"--set=extensions.retryledger_api.query_timeout=10s", fmt.Sprintf("--set=extensions.retryledger_api.write_timeout=%s", writeTimeout)}
	d := start(t, p, short...)
	began := time.Now()
	lines := d.events(t.Context())
	sender := d.sender(ways[0])
	require.NoError(t, sender.Send(t.Context(), traffic("bank", "1.0", 500, 0)))
	require.NoError(t, sender.Send(t.Context(), traffic("shop", "2.0", 60, 20)))

	told := hook.waitFor(t, "firing step_errors shop")
	// The first evaluation that saw the breach may have seen a part of the spans.
	assert.Regexp(t, `^shop: step resolve failed in \d+ of \d+ visits \([\d.]+ %\) within 2m, above 2 %$`, told["summary"])
	// What the store says follows, where it takes longer than a page may wait.
	var fired report.Alert
	eventually(t, appearWithin, func() (err error) {
		if fired, err = d.alert("step_errors", "shop"); err == nil && fired.Annotations["errors"] == "" {
			err = fmt.Errorf("annotations %v", fired.Annotations)
		}
		return err
	})
	assert.Equal(t, "firing", fired.State)
	assert.Regexp(t, `^most frequent error: InternalServerError \(\d+ times\)$`, fired.Annotations["errors"])
	assert.Len(t, strings.Fields(fired.Annotations["runs"]), 3)
	for _, run := range strings.Fields(fired.Annotations["runs"]) {
		d.Retryledger(t, "run", run)
	}
	command := strings.Fields(told["show"])
	require.Equal(t, []string{"retryledger", "top"}, command[:2])
	assert.Contains(t, d.Retryledger(t, command[1:]...), "resolve")
	assert.Contains(t, d.Retryledger(t, "alerts"), "step_errors")
	var why report.Why
	require.NoError(t, d.Get(t.Context(), report.AlertsPath+"/"+fired.Fingerprint, &why))
	assert.NotEmpty(t, why.Samples)
	_, err := d.alert("step_errors", "bank")
	require.Error(t, err)

	// 20 of 560 requests are below 15 %; now half of them.
	require.NoError(t, sender.Send(t.Context(), traffic("shop", "2.0", 600, 600)))
	waitForLine(t, lines, "data: ", `"to":"open"`, `"openai"`)
	assert.Contains(t, d.Retryledger(t, "breakers"), "open")
	var gate gates.Answer
	require.NoError(t, d.Get(t.Context(), gates.Path+"?service=shop&version=2.0", &gate))
	assert.Equal(t, gates.Fail, gate.Decision)
	require.NoError(t, d.Get(t.Context(), gates.Path+"?service=bank&version=1.0", &gate))
	assert.Equal(t, gates.Pass, gate.Decision)
	assert.Contains(t, d.Retryledger(t, "gate", "--service", "bank", "--version", "1.0"), "pass")

	tool := amtool(t)
	remote := "--alertmanager.url=http://" + d.API + "/alertmanager"
	assert.Contains(t, tool(remote, "alert", "query", "service=shop"), "step_errors")
	tool(remote, "silence", "add", "--author=me", "--comment=known", "--duration=1h", "alertname=step_errors", "service=hushed")
	assert.Contains(t, tool(remote, "silence", "query"), "known")
	assert.Contains(t, tool("check-config", file), "SUCCESS")

	rulesError := func(want string, rules int) {
		t.Helper()
		eventually(t, appearWithin, func() error {
			var all report.Alerts
			if err := d.Get(context.Background(), report.AlertsPath, &all); err != nil {
				return err
			}
			if (want == "") != (all.RulesError == "") || !strings.Contains(all.RulesError, want) || all.Rules != rules {
				return fmt.Errorf("%d rules, error %q", all.Rules, all.RulesError)
			}
			return nil
		})
	}
	var inForce report.Rules
	require.NoError(t, d.Get(t.Context(), report.RulesPath, &inForce))
	all := len(inForce.Rules)
	writeRules("rules: [{name: fallbacks, threshold: two}]\n")
	rulesError("two", all)
	writeRules("rules: [{name: fallbacks, enabled: false}]\n")
	rulesError("", all-1)

	if left := writeTimeout + time.Second - time.Since(began); left > 0 {
		time.Sleep(left)
	}
	for drained := false; !drained; {
		select {
		case <-lines:
		default:
			drained = true
		}
	}
	waitForLine(t, lines, ":") // a heartbeat, if nothing else

	d.Kill()
	killed := time.Now()
	d = start(t, p, short...)
	eventually(t, appearWithin, func() error {
		var now report.Alerts
		if err := d.Get(context.Background(), report.AlertsPath, &now); err != nil {
			return err
		}
		if now.EvaluatedAt == nil || now.EvaluatedAt.Before(killed.Add(2*time.Second)) {
			return fmt.Errorf("evaluated at %v", now.EvaluatedAt)
		}
		return nil
	})
	after, err := d.alert("step_errors", "shop")
	require.NoError(t, err)
	assert.Equal(t, "firing", after.State)
	assert.Equal(t, fired.StartsAt, after.StartsAt)
	require.NoError(t, d.sender(ways[0]).Send(t.Context(), traffic("hushed", "1.0", 60, 20)))
	require.NoError(t, d.sender(ways[0]).Send(t.Context(), traffic("late", "1.0", 60, 20)))
	hook.waitFor(t, "firing step_errors late")
	assert.Zero(t, hook.count("firing step_errors hushed"), "silences outlive a kill too")
	assert.LessOrEqual(t, hook.count("firing step_errors shop"), 2, "at most a repeat")
	assert.Zero(t, hook.count("resolved step_errors shop"))

	lines = d.events(t.Context())
	waitForLine(t, lines, "event: state")
	d.Stop() // with the stream open
	eventually(t, appearWithin, func() error {
		select {
		case _, open := <-lines:
			if !open {
				return nil
			}
		default:
		}
		return fmt.Errorf("the stream goes on")
	})
}

// Two collectors on one store tell people once, and one that is left tells them still.
func TestAlertsOfTwoCollectors(t *testing.T) {
	hook := newReceiver(t)
	t.Setenv("RETRYLEDGER_ALERTMANAGER_FILE", hook.file(t))
	address := porttest.Free(t, 1)[0]
	folder := t.TempDir()
	shared := collectortest.LaunchCommand(t, collectortest.Place{Data: folder}, "engine", "--data-dir", folder, "--listen", address)
	shared.WaitFor("listens at " + address)
	password, err := os.ReadFile(filepath.Join(folder, "password"))
	require.NoError(t, err)
	t.Setenv("SHARED_PASSWORD", strings.TrimSpace(string(password)))
	gossip := porttest.Free(t, 2)
	const peerTimeout = 10 * time.Second // a busy machine may take more than a second from one collector to the other
	var both []daemon
	for _, own := range gossip {
		both = append(both, start(t, newPlace(t),
			"--set=extensions.retryledger_store.endpoint="+address,
			"--set=extensions.retryledger_store.username=retryledger",
			"--set=extensions.retryledger_store.password=${env:SHARED_PASSWORD}",
			"--set=extensions.retryledger_alerts.delivery.cluster.bind_address="+own,
			fmt.Sprint("--set=extensions.retryledger_alerts.delivery.cluster.peer_timeout=", peerTimeout),
			"--set=extensions.retryledger_alerts.delivery.cluster.peers=["+strings.Join(gossip, ",")+"]"))
	}
	for _, d := range both {
		eventually(t, appearWithin, func() error {
			var status struct {
				Cluster struct {
					Status string
					Peers  []any
				}
			}
			if err := d.Get(context.Background(), "/alertmanager/api/v2/status", &status); err != nil {
				return err
			}
			if status.Cluster.Status != "ready" || len(status.Cluster.Peers) != 2 {
				return fmt.Errorf("cluster: %+v", status.Cluster)
			}
			return nil
		})
	}
	fires := func(d daemon, service string) {
		t.Helper()
		eventually(t, appearWithin, func() error {
			a, err := d.alert("step_errors", service)
			if err == nil && a.State != "firing" {
				err = fmt.Errorf("it is %s", a.State)
			}
			return err
		})
	}
	require.NoError(t, both[0].sender(ways[0]).Send(t.Context(), traffic("shop", "2.0", 60, 20)))
	hook.waitFor(t, "firing step_errors shop")
	fires(both[0], "shop")
	fires(both[1], "shop")
	time.Sleep(peerTimeout + 4*time.Second) // longer than the second one waits for the first
	assert.Equal(t, 1, hook.count("firing step_errors shop"))

	both[0].Kill()
	require.NoError(t, both[1].sender(ways[0]).Send(t.Context(), traffic("bank", "2.0", 60, 20)))
	hook.waitFor(t, "firing step_errors bank")
	assert.Zero(t, hook.count("resolved step_errors shop"))
	both[1].Stop()
	shared.Stop()
}
