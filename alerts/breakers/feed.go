package breakers

import (
	"encoding/json"
	"errors"
	"strconv"
	"strings"
)

const (
	// remembered is how many events a subscriber that comes back can catch up on, pending
	// how many one may be behind: more than one evaluation can bring.
	remembered = maxProviders + 24
	pending    = remembered
)

// Kinds of events.
const (
	kindState      = "state"
	kindTransition = "transition"
)

// change is the data of a transition's event.
type change struct {
	Transition
	Breaker View `json:"breaker"`
}

type event struct {
	number uint64
	kind   string
	data   []byte // of a transition; a state is written when it is sent
}

// feed hands events to subscribers. One that does not take them is dropped: nobody
// waits for it. The lock is Set's.
type feed struct {
	instance    string
	last        uint64
	recent      []event
	subscribers map[*subscription]struct{}
	closed      bool
}

func newFeed(instance string) feed {
	return feed{instance: instance, subscribers: map[*subscription]struct{}{}}
}

// subscription is a subscriber's end. events is closed when it is dropped, and when
// the set is.
type subscription struct {
	events chan event
	missed []event // since its last event
	// fresh: it needs the whole state first.
	fresh bool
}

var (
	errClosed = errors.New("the collector is stopping")
	errFull   = errors.New("too many clients follow the breakers")
)

func (f *feed) publish(kind string, data any) {
	if f.closed {
		return
	}
	f.last++
	e := event{number: f.last, kind: kind}
	if data != nil {
		e.data, _ = json.Marshal(data) // plain data
	}
	f.recent = append(f.recent[max(0, len(f.recent)-remembered+1):len(f.recent):len(f.recent)], e)
	for s := range f.subscribers {
		select {
		case s.events <- e:
		default:
			f.drop(s)
		}
	}
}

func (f *feed) drop(s *subscription) {
	if _, ok := f.subscribers[s]; ok {
		delete(f.subscribers, s)
		close(s.events)
	}
}

func (f *feed) close() {
	f.closed = true
	for s := range f.subscribers {
		f.drop(s)
	}
}

// id is how an event is named to clients.
func (f *feed) id(number uint64) string {
	return f.instance + "-" + strconv.FormatUint(number, 10)
}

// subscribe begins a subscription. One that comes back with the id of its last event
// gets what it missed, if that is remembered.
func (s *Set) subscribe(lastID string, most int) (*subscription, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := &s.feed
	if f.closed {
		return nil, errClosed
	}
	if len(f.subscribers) >= most {
		return nil, errFull
	}
	sub := &subscription{events: make(chan event, pending), fresh: true}
	if text, ok := strings.CutPrefix(lastID, f.instance+"-"); ok {
		last, err := strconv.ParseUint(text, 10, 64)
		oldest := f.last - uint64(len(f.recent)) // the number before the oldest remembered
		if err == nil && last >= oldest && last <= f.last {
			sub.fresh, sub.missed = false, f.recent[last-oldest:]
		}
	}
	f.subscribers[sub] = struct{}{}
	return sub, nil
}

func (s *Set) unsubscribe(sub *subscription) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.feed.drop(sub)
}

// position is the id of the last event.
func (s *Set) position() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.feed.id(s.feed.last)
}
