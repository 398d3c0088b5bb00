package breakers

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/config/confighttp"

	"github.com/retryledger/retryledger/analysis/answer"
)

const maxFollowers = 8

// served is a set behind a real server, at an instant that the test moves.
type served struct {
	*Set
	requests *requests
	second   atomic.Int64
	server   *httptest.Server
}

func serve(t *testing.T, change func(*http.Server)) *served {
	t.Helper()
	s := &served{Set: newSet(t), requests: &requests{}}
	s.server = httptest.NewUnstartedServer(NewHandler(HandlerSettings{
		Set: s.Set, Now: func() time.Time { return at(int(s.second.Load())) }, MaxSubscribers: maxFollowers,
	}))
	if change != nil {
		change(s.server.Config)
	}
	s.server.Start()
	t.Cleanup(func() {
		s.Close()
		s.server.Close()
	})
	return s
}

// to evaluates a second.
func (s *served) to(t *testing.T, second int) {
	t.Helper()
	s.second.Store(int64(second))
	evaluate(t, s.Set, s.requests, second)
}

func (s *served) ask(t *testing.T, method, path string, into any) int {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, s.server.URL+path, http.NoBody)
	require.NoError(t, err)
	response, err := s.server.Client().Do(r)
	require.NoError(t, err)
	defer response.Body.Close()
	require.Equal(t, "application/json", response.Header.Get("Content-Type"))
	require.NoError(t, json.NewDecoder(response.Body).Decode(into))
	return response.StatusCode
}

func TestAnswers(t *testing.T) {
	s := serve(t, nil)
	var views Views
	require.Equal(t, http.StatusOK, s.ask(t, http.MethodGet, Path, &views))
	assert.True(t, views.Stale)
	assert.NotNil(t, views.Breakers)
	assert.Empty(t, views.Breakers)

	s.requests.add("azure/eu west", 1, 100, 503)
	s.requests.add("openai", 1, 10, 200)
	s.to(t, 1)
	require.Equal(t, http.StatusOK, s.ask(t, http.MethodGet, Path, &views))
	assert.False(t, views.Stale)
	require.Len(t, views.Breakers, 2)
	assert.Len(t, views.Breakers[0].History, 1)

	var view View
	require.Equal(t, http.StatusOK, s.ask(t, http.MethodGet, Path+"/azure%2Feu%20west", &view))
	assert.Equal(t, Open, view.State)
	assert.Equal(t, at(1), view.Since)
	assert.Equal(t, at(11), *view.RetryAt)
	assert.EqualValues(t, 0, *view.ProbesAllowed)
	assert.Equal(t, Counts{Requests: 100, ServerErrors: 100}, view.Counts)
	require.Equal(t, http.StatusOK, s.ask(t, http.MethodGet, Path+"/nobody", &view), "a client that asks goes on")
	assert.True(t, view.Stale)

	var permit Permit
	require.Equal(t, http.StatusOK, s.ask(t, http.MethodPost, Path+"/azure%2Feu%20west/probe", &permit))
	assert.False(t, permit.Granted)
	require.Equal(t, http.StatusOK, s.ask(t, http.MethodPost, Path+"/openai/probe", &permit))
	assert.True(t, permit.Granted)
	s.to(t, 11)
	for probe := range 6 {
		s.ask(t, http.MethodPost, Path+"/azure%2Feu%20west/probe", &permit)
		assert.Equal(t, probe < 5, permit.Granted)
	}
	assert.Equal(t, HalfOpen, permit.Breaker.State)
	assert.EqualValues(t, 0, *permit.Breaker.ProbesAllowed)
}

func TestTheJSONOfABreaker(t *testing.T) {
	s := newSet(t)
	r := &requests{}
	r.add("openai", 1, 36, 503)
	r.add("openai", 1, 4, 429)
	r.add("openai", 1, 80, 200)
	evaluate(t, s, r, 1)
	encoded, err := json.Marshal(s.View("openai", at(1)))
	require.NoError(t, err)
	assert.JSONEq(t, `{
		"provider": "openai", "state": "open", "stale": false, "since": "2026-03-02T12:00:01Z",
		"why": "36 of 120 requests in 30s ended in a server error (30 %, above 15 %); 4 were throttled.",
		"probes_allowed": 0, "retry_at": "2026-03-02T12:00:11Z",
		"requests": 120, "server_errors": 36, "throttled": 4, "server_error_ratio": 0.3,
		"from": "2026-03-02T11:59:31Z", "to": "2026-03-02T12:00:01Z", "trips": 1,
		"history": [{"provider": "openai", "from": "closed", "to": "open", "at": "2026-03-02T12:00:01Z",
			"why": "36 of 120 requests in 30s ended in a server error (30 %, above 15 %); 4 were throttled.",
			"counts": {"requests": 120, "server_errors": 36, "throttled": 4}}]
	}`, string(encoded))
}

func TestMistakesAreAnsweredWithARemedy(t *testing.T) {
	s := serve(t, nil)
	for _, c := range []struct {
		method, path string
		status       int
		want         string
	}{
		{http.MethodGet, Path + "?provider=openai", http.StatusBadRequest, `no parameter "provider"; it takes none`},
		{http.MethodPost, Path, http.StatusMethodNotAllowed, "ask with GET"},
		{http.MethodDelete, Path + "/openai", http.StatusMethodNotAllowed, "ask with GET"},
		{http.MethodGet, Path + "/openai/probe", http.StatusMethodNotAllowed, "ask with POST"},
		{http.MethodGet, Path + "/azure/eu/west", http.StatusNotFound, "%2F"},
	} {
		var failure answer.Failure
		assert.Equal(t, c.status, s.ask(t, c.method, c.path, &failure), c.path)
		assert.Contains(t, failure.Error, c.want, c.path)
	}
}

// follower reads a stream.
type follower struct {
	response *http.Response
	lines    *bufio.Scanner
}

// message is a server-sent event.
type message struct{ event, id, data, comment string }

func (s *served) follow(t *testing.T, lastID string) *follower {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.server.URL+Path, http.NoBody)
	require.NoError(t, err)
	r.Header.Set("Accept", "text/event-stream")
	if lastID != "" {
		r.Header.Set("Last-Event-ID", lastID)
	}
	response, err := s.server.Client().Do(r)
	require.NoError(t, err)
	t.Cleanup(func() { _ = response.Body.Close() })
	require.Equal(t, http.StatusOK, response.StatusCode)
	require.Equal(t, "text/event-stream", response.Header.Get("Content-Type"))
	lines := bufio.NewScanner(response.Body)
	lines.Buffer(nil, 16<<20)
	return &follower{response, lines}
}

// next is the next event, empty at the end of the stream.
func (f *follower) next() message {
	var m message
	for f.lines.Scan() {
		name, value, _ := strings.Cut(f.lines.Text(), ": ")
		switch name {
		case "event":
			m.event = value
		case "id":
			m.id = value
		case "data":
			m.data = value
		case "":
			if strings.HasPrefix(f.lines.Text(), ":") {
				m.comment = value
			} else if m != (message{}) {
				return m
			}
		}
	}
	return message{}
}

func TestAStreamSaysAllAndThenEachTransition(t *testing.T) {
	s := serve(t, nil)
	s.requests.add("openai", 1, 100, 200)
	s.to(t, 1)
	f := s.follow(t, "")
	first := f.next()
	assert.Equal(t, "state", first.event)
	var views Views
	require.NoError(t, json.Unmarshal([]byte(first.data), &views))
	require.Len(t, views.Breakers, 1)
	assert.Equal(t, Closed, views.Breakers[0].State)
	assert.Empty(t, views.Breakers[0].History)

	s.requests.add("openai", 2, 100, 503)
	s.to(t, 2)
	s.to(t, 12)
	var ids []string
	for _, want := range []State{Open, HalfOpen} {
		m := f.next()
		assert.Equal(t, "transition", m.event)
		var c change
		require.NoError(t, json.Unmarshal([]byte(m.data), &c))
		assert.Equal(t, want, c.To)
		assert.Equal(t, want, c.Breaker.State)
		assert.Equal(t, "openai", c.Provider)
		assert.NotEmpty(t, c.Why)
		ids = append(ids, m.id)
	}

	back := s.follow(t, ids[0]).next()
	assert.Equal(t, "transition", back.event, "one that comes back hears what it missed")
	assert.Equal(t, ids[1], back.id)
	all := s.follow(t, "test-0")
	assert.Equal(t, ids[0], all.next().id)
	assert.Equal(t, ids[1], all.next().id)
	require.NoError(t, all.response.Body.Close())
	for _, unknown := range []string{"test-999", "other-1", "nonsense", "test-x"} {
		m := s.follow(t, unknown)
		assert.Equal(t, "state", m.next().event, "all, when it is not known what it missed")
		require.NoError(t, m.response.Body.Close())
		require.Eventually(t, func() bool { return s.subscribers() <= 3 }, 5*time.Second, time.Millisecond)
	}

	s.Close()
	assert.Empty(t, f.next(), "the end of the set is the end of the stream")
	var failure answer.Failure
	require.Equal(t, http.StatusServiceUnavailable, s.ask(t, http.MethodGet, Path+"/stream", &failure))
	assert.Contains(t, failure.Error, "stopping")
}

func (s *served) subscribers() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.feed.subscribers)
}

func TestARestoreIsTold(t *testing.T) {
	s := serve(t, nil)
	s.requests.add("openai", 1, 1, 200)
	s.to(t, 1)
	f := s.follow(t, "")
	assert.Equal(t, "state", f.next().event)
	require.True(t, s.Restore(Snapshot{Breakers: []Breaker{{Provider: "openai", State: Open, Since: at(0), RetryAt: at(10), Trips: 3}}}))
	m := f.next()
	assert.Equal(t, "state", m.event)
	assert.Contains(t, m.data, `"state":"open"`)
}

func TestStreamsAreBounded(t *testing.T) {
	s := serve(t, nil)
	s.to(t, 1)
	var followers []*follower
	for range maxFollowers {
		f := s.follow(t, "")
		f.next()
		followers = append(followers, f)
	}
	var failure answer.Failure
	require.Equal(t, http.StatusServiceUnavailable, s.ask(t, http.MethodGet, Path+"/stream", &failure))
	assert.Contains(t, failure.Error, "too many clients follow the breakers, 8; ask /api/v1/breakers every second")
	require.NoError(t, followers[0].response.Body.Close())
	require.Eventually(t, func() bool { return s.subscribers() == maxFollowers-1 }, 5*time.Second, time.Millisecond)
	assert.Equal(t, "state", s.follow(t, "").next().event)
}

// TestASlowSubscriberIsDropped, and holds up nobody: neither evaluations nor others.
func TestASlowSubscriberIsDropped(t *testing.T) {
	s := serve(t, func(server *http.Server) {
		server.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
			if tcp, ok := c.(*net.TCPConn); ok {
				assert.NoError(t, tcp.SetWriteBuffer(4<<10))
			}
			return ctx
		}
	})
	s.to(t, 1)
	address, ok := s.server.Listener.Addr().(*net.TCPAddr)
	require.True(t, ok)
	slow, err := net.DialTCP("tcp", nil, address)
	require.NoError(t, err)
	defer slow.Close()
	require.NoError(t, slow.SetReadBuffer(4<<10))
	_, err = fmt.Fprintf(slow, "GET %s/stream HTTP/1.1\r\nHost: here\r\n\r\n", Path)
	require.NoError(t, err)
	require.Eventually(t, func() bool { return s.subscribers() == 1 }, 5*time.Second, time.Millisecond)
	// It never reads, while far more events come than buffers hold.
	quick := s.follow(t, "")
	assert.Equal(t, "state", quick.next().event)
	published := 0
	for second := 2; s.subscribers() == 2; second++ {
		require.Less(t, second, 1000, "it is never dropped")
		for i := range 50 { // each second others, so that all open
			s.requests.add(fmt.Sprintf("provider-%d-%d", second%20, i), second, 20, 503)
		}
		s.second.Store(int64(second))
		for range evaluate(t, s.Set, s.requests, second) {
			published++
			require.Equal(t, "transition", quick.next().event)
		}
	}
	assert.Greater(t, published, pending)
	t.Logf("dropped after %d transitions", published)
	s.requests.add("the last", 1001, 20, 503)
	s.second.Store(1001)
	evaluate(t, s.Set, s.requests, 1001)
	for m := quick.next(); !strings.Contains(m.data, "the last"); m = quick.next() {
		require.NotEmpty(t, m.event, "the quick one hears on")
	}
}

// TestAStreamOutlivesTheCollectorsWriteTimeout, which is for answers that end, and is
// not held back by what the Collector's server puts around a handler.
func TestAStreamOutlivesTheCollectorsWriteTimeout(t *testing.T) {
	s := serve(t, func(server *http.Server) {
		config := confighttp.NewDefaultServerConfig()
		config.WriteTimeout = 200 * time.Millisecond
		collectors, err := config.ToServer(t.Context(), nil, componenttest.NewNopTelemetrySettings(), server.Handler)
		require.NoError(t, err)
		server.Handler, server.WriteTimeout = collectors.Handler, collectors.WriteTimeout
	})
	s.to(t, 1)
	f := s.follow(t, "")
	assert.Equal(t, "state", f.next().event)
	time.Sleep(400 * time.Millisecond)
	s.requests.add("openai", 2, 100, 503)
	s.to(t, 2)
	assert.Equal(t, "transition", f.next().event)
}

// recorder is a client within a bubble of synctest, where sockets are not.
type recorder struct {
	mu     sync.Mutex
	header http.Header
	body   bytes.Buffer
}

func (r *recorder) Header() http.Header { return r.header }
func (r *recorder) WriteHeader(int)     {}
func (r *recorder) Flush()              {}
func (r *recorder) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.body.Write(p)
}

// take is what was written since the last time.
func (r *recorder) take() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	text := r.body.String()
	r.body.Reset()
	return text
}

func TestTimersOfAStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSet(t)
		start := time.Now()
		now := func() time.Time { return at(1).Add(time.Since(start)) }
		r := &requests{}
		r.add("openai", 1, 100, 503)
		evaluate(t, s, r, 1)
		h := NewHandler(HandlerSettings{Set: s, Now: now, MaxSubscribers: 1})
		ctx, cancel := context.WithCancel(t.Context())
		w := &recorder{header: http.Header{}}
		done := make(chan struct{})
		go func() {
			defer close(done)
			h.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, Path+"/stream", http.NoBody))
		}()
		synctest.Wait()
		assert.True(t, strings.HasPrefix(w.take(), "retry: 1000\n\nevent: state\nid: test-1\ndata: {"))
		time.Sleep(4900 * time.Millisecond)
		synctest.Wait()
		assert.Empty(t, w.take())
		time.Sleep(200 * time.Millisecond)
		synctest.Wait()
		assert.Equal(t, ": heartbeat\n\n", w.take(), "after 5 s of silence")

		time.Sleep(24500 * time.Millisecond) // 29.6 s since the last evaluation
		synctest.Wait()
		assert.NotContains(t, w.take(), "event:")
		time.Sleep(1500 * time.Millisecond)
		synctest.Wait()
		text := w.take()
		assert.Contains(t, text, "event: state", "within a second of the data being stale")
		assert.Contains(t, text, `"stale":true`)
		assert.Contains(t, text, `"state":"closed"`)
		_, err := s.Evaluate(t.Context(), r, now(), now())
		require.NoError(t, err)
		time.Sleep(time.Second)
		synctest.Wait()
		text = w.take()
		assert.Contains(t, text, `"to":"half_open"`)
		assert.Contains(t, text, `"stale":false`, "and of their being fresh again")

		cancel()
		<-done
		assert.Empty(t, s.feed.subscribers)
	})
}

// TestManyFollowersAndEvaluations run at the same time, for the race detector.
func TestManyFollowersAndEvaluations(t *testing.T) {
	s := serve(t, nil)
	s.to(t, 1)
	var running sync.WaitGroup
	for range 3 {
		running.Go(func() {
			for range 5 {
				f := s.follow(t, "")
				f.next()
				f.next()
				_, _ = io.CopyN(io.Discard, f.response.Body, 10)
				_ = f.response.Body.Close()
				for s.subscribers() > maxFollowers-4 {
					time.Sleep(time.Millisecond)
				}
			}
		})
	}
	stop := make(chan struct{})
	var evaluating sync.WaitGroup
	evaluating.Go(func() {
		for second := 2; ; second++ {
			select {
			case <-stop:
				return
			default:
			}
			s.requests.add("openai", second, 20, 200+300*(second/20%2))
			s.to(t, second)
			s.Restore(s.Snapshot())
			s.Permit("openai", at(second))
			time.Sleep(100 * time.Microsecond)
		}
	})
	running.Wait()
	close(stop)
	evaluating.Wait()
}
