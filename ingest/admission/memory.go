package admission

import (
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
)

// memory bounds what the messages under way take once they are decoded, all of them
// together, as estimated before they are.
type memory struct {
	most   int64 // bytes; one message that would take more by itself is refused for good
	coarse int64 // what a message that is walked while it comes may be overestimated by

	mu    sync.Mutex
	taken int64 // the sum of all reservations
}

// newMemory is a memory of most bytes. Coarse estimates, which may be ten times too high, never
// take more than half of it: those of messages that are there whole a quarter, and those of
// messages that come another one.
func newMemory(most int64, maxInFlight int) *memory {
	return &memory{most: most, coarse: most / 4 / int64(maxInFlight)}
}

// reserve begins the reservation of a message, with nothing.
func (m *memory) reserve() *reservation { return &reservation{of: m} }

// reservation is what one message holds of a memory.
type reservation struct {
	of   *memory
	held int64
}

// take sets what the message holds to n bytes, and says whether it may: not if others hold
// something and it would be more than most with theirs. So of messages that grow at the same
// time one at least goes on, and a message that comes alone is let in.
func (r *reservation) take(n, most int64) bool {
	r.of.mu.Lock()
	defer r.of.mu.Unlock()
	others := r.of.taken - r.held
	if others > 0 && others+n > most {
		return false
	}
	r.of.taken, r.held = others+n, n
	return true
}

// release ends the reservation. Another time it does nothing.
func (r *reservation) release() {
	r.of.mu.Lock()
	defer r.of.mu.Unlock()
	r.of.taken, r.held = r.of.taken-r.held, 0
}

// protobuf reserves what decoding a message takes, or says why it must not be decoded. The
// coarse walk costs next to nothing, and that it estimates too much hurts nobody while most of
// the memory is free; then each message is looked into.
func (r *reservation) protobuf(data mem.BufferSlice) reason {
	most := r.of.most
	estimated, why := walked(newWalk(most, most/4), data)
	if why != admitted || r.take(estimated, most/4) {
		return why
	}
	estimated, why = walked(newWalk(most, 0), data)
	if why != admitted || r.take(estimated, most) {
		return why
	}
	return decodedFull
}

func walked(w *walk, data mem.BufferSlice) (int64, reason) {
	for _, buffer := range data {
		if why := w.feed(buffer.ReadOnlyData()); why != admitted {
			return 0, why
		}
	}
	return w.size(), admitted
}

// json does the same for a message in JSON; or says that it is no OTLP, after which pdata
// would go on to read whatever comes. Nearly no message can take too much, which shows by a
// look; others are walked, and all where a quarter of the memory is taken.
func (r *reservation) json(p []byte) (reason, error) {
	most := r.of.most
	if n := atMostJSON(p); n <= most && mayNest(p) <= deepest && r.take(n, most/4) {
		return admitted, nil
	}
	w := newWalkJSON(p, most)
	switch err := w.walk(); {
	case err != nil || w.refused != admitted:
		return w.refused, err
	case !r.take(w.size(), most):
		return decodedFull, nil
	}
	return admitted, nil
}

// errBusy tells a sender to come again.
var errBusy = status.Error(codes.Unavailable, "the collector is busy, try again")

// says tells a sender why its message is not decoded, and what to do.
func (m *memory) says(why reason) error {
	switch why { //nolint:exhaustive // the others are not this memory's
	case decodedFull:
		return errBusy
	case nestedTooDeep:
		return status.Errorf(codes.InvalidArgument, "not decoded: a value has arrays or lists more than %d deep in each other; send it as text", deepest) //nolint:wrapcheck // what goes to the sender
	}
	return status.Errorf(codes.InvalidArgument, //nolint:wrapcheck // what goes to the sender
		"not decoded: it would take more than %d MiB of memory (max_decoded_mib of retryledger_admission), having very many parts for its size; send smaller batches", m.most>>20)
}
