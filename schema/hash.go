package schema

import (
	"encoding/binary"
	"math"

	"github.com/cespare/xxhash/v2"
)

// Hash is the hash of the span's content: of every field but ReceivedNs and
// ContentHash itself, so that one span hashes alike however often and whenever it
// is delivered. Its highest byte is how many fields the span states, at most 255, so
// that of two contents of one id with one end the larger hash is that of the one
// that says more.
func (s *Span) Hash() uint64 {
	h := hasher{Digest: xxhash.New(), said: new(int)}
	h.bytes(s.TraceID[:])
	h.bytes(s.SpanID[:])
	h.bytes(s.ParentID[:])
	h.ints(s.StartNs, s.EndNs)
	h.texts(s.Service, s.Version, s.Environment, s.Scope, s.Dialect, s.Name, string(s.Role))
	h.flags(s.ClientKind, s.Heartbeat, s.GraphRoot, s.Hidden, s.StatedExhausted, s.FallbackWrapper, s.RetryWrapper, s.NeedsReview,
		s.Failed, s.StatusOK, s.OutputFailed, s.ContractSpan, s.RunCancelled, s.BudgetExhausted)
	h.texts(s.RunID, s.ThreadID, s.WorkerID, s.Step, s.Node, s.TaskKey, s.AttemptEvidence, s.RetryLayer,
		s.FallbackFrom, s.FallbackTo, s.FallbackReason, string(s.Flow), s.ErrorClass, s.OutputReason,
		s.Model, s.ResponseModel, s.Provider, s.FinishReason)
	h.ints(int64(s.RunIDRank), int64(s.RunAttempt), int64(s.GraphStep), int64(s.NodeRun), int64(s.Attempt), int64(s.AttemptLimit),
		int64(s.RetryCount), int64(s.ResendCount), int64(s.StatedAttempts), int64(s.Fallback), int64(s.FallbackEvents),
		int64(s.HTTPStatus), int64(s.StepFailed), s.InputTokens, s.OutputTokens, int64(s.Complete), int64(s.RunLimit), int64(s.StepLimit))
	h.uint64(math.Float64bits(s.CostUSD))
	h.uint64(s.InputHash)
	h.uint64(s.ItemHash)
	h.says(!math.IsNaN(s.CostUSD) && s.CostUSD != 0, s.InputHash != 0, s.ItemHash != 0)
	h.ints(int64(len(s.RetryEvents)), int64(len(s.Violations)), int64(len(s.UnfinishedSteps)))
	for _, e := range s.RetryEvents {
		h.ints(e.TimeNs, int64(e.Attempt), int64(e.HTTPStatus))
		h.texts(e.ErrorClass)
	}
	for _, v := range s.Violations {
		h.texts(v.Node, v.Key, v.Direction)
		h.ints(v.TimeNs)
	}
	h.texts(s.UnfinishedSteps...)
	if s.Sampled { // only then, so that spans of earlier releases hash as they did
		h.flags(true)
	}
	return uint64(min(*h.said, math.MaxUint8))<<56 | h.Sum64()>>8
}

// hasher writes fields with their lengths, so that no two rows share an encoding.
type hasher struct {
	*xxhash.Digest
	said *int // fields that are stated
}

func (h hasher) says(stated ...bool) {
	for _, yes := range stated {
		if yes {
			*h.said++
		}
	}
}

func (h hasher) uint64(n uint64) {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], n)
	_, _ = h.Write(b[:])
}

func (h hasher) ints(values ...int64) {
	for _, n := range values {
		h.uint64(uint64(n)) // the bits, not the value
		h.says(n != 0 && n != Unknown)
	}
}

func (h hasher) bytes(b []byte) { _, _ = h.Write(b) }

func (h hasher) texts(values ...string) {
	for _, s := range values {
		h.uint64(uint64(len(s)))
		_, _ = h.WriteString(s)
		h.says(s != "")
	}
}

func (h hasher) flags(values ...bool) {
	for _, on := range values {
		b := byte(0)
		if on {
			b = 1
		}
		_, _ = h.Write([]byte{b})
		h.says(on)
	}
}
