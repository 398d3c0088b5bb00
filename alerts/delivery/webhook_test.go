package delivery

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// patience is how long a test waits for what must come. Nothing is measured by it.
const patience = 60 * time.Second

// notification is what a webhook receiver is sent, and when it came.
type notification struct {
	at     time.Time
	path   string
	body   string
	Status string `json:"status"`
	Alerts []struct {
		Status       string            `json:"status"`
		Labels       map[string]string `json:"labels"`
		Annotations  map[string]string `json:"annotations"`
		StartsAt     time.Time         `json:"startsAt"`
		EndsAt       time.Time         `json:"endsAt"`
		GeneratorURL string            `json:"generatorURL"`
	} `json:"alerts"`
	ExternalURL string `json:"externalURL"`
}

// webhook is a receiver that notes what it is told.
type webhook struct {
	*httptest.Server
	mu    sync.Mutex
	all   []notification
	reply func(r *http.Request) int // status code; nil for 200
}

func newWebhook(tb testing.TB) *webhook {
	tb.Helper()
	w := &webhook{}
	w.Server = httptest.NewServer(w)
	tb.Cleanup(w.Close)
	return w
}

func (w *webhook) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	n := notification{at: time.Now(), path: r.URL.Path, body: string(body)}
	_ = json.Unmarshal(body, &n)
	w.mu.Lock()
	w.all = append(w.all, n)
	reply := w.reply
	w.mu.Unlock()
	if reply != nil {
		rw.WriteHeader(reply(r))
	}
}

func (w *webhook) answer(reply func(r *http.Request) int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reply = reply
}

func (w *webhook) notifications() []notification {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]notification(nil), w.all...)
}

// told counts how often it was told that an alert fires or is resolved, by "status name".
func (w *webhook) told() map[string]int {
	counts := map[string]int{}
	for _, n := range w.notifications() {
		for _, a := range n.Alerts {
			counts[a.Status+" "+a.Labels["alertname"]]++
		}
	}
	return counts
}

func (w *webhook) waitFor(tb testing.TB, what string) {
	tb.Helper()
	require.Eventually(tb, func() bool { return w.told()[what] > 0 }, patience, 5*time.Millisecond, "not told: %s", what)
}

// config is an Alertmanager configuration with this webhook as its only receiver.
func (w *webhook) config(route string) string {
	if route == "" {
		route = "group_by: ['...']\n  group_wait: 0s\n  group_interval: 5s\n  repeat_interval: 4h"
	}
	return fmt.Sprintf("route:\n  receiver: webhook\n  %s\nreceivers:\n  - name: webhook\n    webhook_configs:\n      - url: %s/hook\n", route, w.URL)
}
