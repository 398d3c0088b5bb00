package breakers

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"
)

const (
	// checkEvery is how soon a stream tells that the data have become stale, or fresh.
	checkEvery = time.Second
	// heartbeatEvery is the longest silence of a stream.
	heartbeatEvery = 5 * time.Second
	// writeTimeout is how long a client may take to read an event.
	writeTimeout = 10 * time.Second
)

// stream follows the breakers as server-sent events
// (https://html.spec.whatwg.org/multipage/server-sent-events.html): "state" with Views,
// first and whenever all may have changed; "transition" for each, with its breaker; and
// a comment as a heartbeat.
func (h *handler) stream(w http.ResponseWriter, r *http.Request) {
	sub, err := h.Set.subscribe(r.Header.Get("Last-Event-ID"), h.MaxSubscribers)
	if err != nil {
		w.Header().Set("Retry-After", "5")
		if errors.Is(err, errFull) {
			err = fmt.Errorf("%w, %d; ask %s every second instead", err, h.MaxSubscribers, Path)
		}
		h.refuse(w, http.StatusServiceUnavailable, err)
		return
	}
	defer h.Set.unsubscribe(sub)
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Accel-Buffering", "no") // nginx would hold events back
	w.WriteHeader(http.StatusOK)
	if r.Method == http.MethodHead {
		return
	}
	s := &streamWriter{handler: h, out: w, control: http.NewResponseController(w)}
	defer func() { _ = s.control.SetWriteDeadline(time.Time{}) }() // of the connection, which may serve on
	if err := s.begin(sub); err != nil {
		return
	}
	check := time.NewTicker(checkEvery)
	defer check.Stop()
	for {
		select {
		case <-r.Context().Done():
			return
		case e, open := <-sub.events:
			if !open || s.event(e) != nil {
				return
			}
		case <-check.C:
			if s.check() != nil {
				return
			}
		}
	}
}

// streamWriter writes one stream.
type streamWriter struct {
	*handler
	out     http.ResponseWriter
	control *http.ResponseController
	stale   bool // as the client knows it
	silent  time.Duration
}

// begin brings the client up to date.
func (s *streamWriter) begin(sub *subscription) error {
	if err := s.send([]byte("retry: 1000\n\n")); err != nil {
		return err
	}
	if sub.fresh || s.Set.Stale(s.Now()) {
		return s.state(s.Set.position())
	}
	for _, e := range sub.missed {
		if err := s.event(e); err != nil {
			return err
		}
	}
	return nil
}

func (s *streamWriter) event(e event) error {
	id := s.Set.feed.id(e.number)
	if e.kind == kindState {
		return s.state(id)
	}
	return s.send(frame(e.kind, id, e.data))
}

// state sends all breakers. What changed after the id of its event is sent again, as
// the transition that it is.
func (s *streamWriter) state(id string) error {
	views := s.Set.Views(s.Now(), false)
	s.stale = views.Stale
	data, err := json.Marshal(views)
	if err != nil {
		return fmt.Errorf("write the breakers as JSON: %w", err)
	}
	return s.send(frame(kindState, id, data))
}

// check says what no transition says, and that the stream lives.
func (s *streamWriter) check() error {
	if s.Set.Stale(s.Now()) != s.stale {
		return s.state(s.Set.position())
	}
	if s.silent += checkEvery; s.silent >= heartbeatEvery {
		return s.send([]byte(": heartbeat\n\n"))
	}
	return nil
}

func (s *streamWriter) send(text []byte) error {
	s.silent = 0
	// The server's write timeout is for answers that end; each event has its own.
	if err := s.control.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return fmt.Errorf("set the deadline of an event: %w", err)
	}
	if _, err := s.out.Write(text); err != nil {
		return fmt.Errorf("write an event: %w", err)
	}
	if err := s.control.Flush(); err != nil {
		return fmt.Errorf("write an event: %w", err)
	}
	return nil
}

// frame is one event; data is JSON, which has no line breaks.
func frame(kind, id string, data []byte) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "event: %s\nid: %s\ndata: %s\n\n", kind, id, data)
	return b.Bytes()
}
