package schema

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math/big"
)

// State is what became of a trace's spans.
type State string

// The states of a trace in the ledger.
const (
	StateAttributed   State = "attributed"
	StateUnattributed State = "unattributed" // no step, call, flag or run id: no run
	StateFailed       State = "failed"       // attribution failed on it; the collector's log says how
	StateTooLarge     State = "too_large"    // more spans than one run may have
)

// LedgerVersion orders the accounts of one trace: the one that read later
// inserts wins, then the one that read more spans, then the later judgement.
type LedgerVersion struct {
	InsertedUs int64  // the newest insert that was read, microseconds since the epoch by the store's clock
	Spans      uint32 // distinct spans that were read, of all traces of the run
	JudgedS    uint32 // the instant of the judgement, seconds since the epoch
}

// Compare is negative where v loses against w.
func (v LedgerVersion) Compare(w LedgerVersion) int {
	return cmp.Or(cmp.Compare(v.InsertedUs, w.InsertedUs), cmp.Compare(v.Spans, w.Spans), cmp.Compare(v.JudgedS, w.JudgedS))
}

func (v LedgerVersion) big() *big.Int {
	n := new(big.Int).SetInt64(max(v.InsertedUs, 0))
	n.Lsh(n, 64)
	return n.Or(n, new(big.Int).SetUint64(uint64(v.Spans)<<32|uint64(v.JudgedS)))
}

// UnmarshalBinary takes the 16 bytes of a UInt128 as ClickHouse keeps it, the
// lowest first.
func (v *LedgerVersion) UnmarshalBinary(data []byte) error {
	if len(data) != 16 {
		return fmt.Errorf("a version of the ledger has 16 bytes, not %d", len(data))
	}
	v.JudgedS = binary.LittleEndian.Uint32(data)
	v.Spans = binary.LittleEndian.Uint32(data[4:])
	v.InsertedUs = int64(binary.LittleEndian.Uint64(data[8:]))
	return nil
}

// LedgerRow is one row of the table ledger: all that is known about the runs of
// one trace. Times are nanoseconds since the epoch unless the name says otherwise.
type LedgerRow struct {
	TraceID           TraceID
	Version           LedgerVersion
	State             State
	Spans             uint32 // distinct spans read of this trace
	UnattributedSpans uint32
	FirstEndNs        int64    // of its spans, bounded by the time of receipt
	LastEndNs         int64    // of its spans, bounded by the time of receipt
	LastReceivedNs    int64    // of its spans
	ReachedNs         int64    // LedgerHead.ReachNs of the row that this one replaces, 0 for the first
	RejudgeS          uint32   // when silence alone changes the account, seconds since the epoch; 0 never
	InsertTokens      []uint64 // the latest inserts whose spans were read

	Runs       []RunRow
	Steps      []StepRow // of the runs whose anchor this trace is
	Operations []OperationRow
	Attempts   []AttemptRow
	Violations []ViolationRow
}

// RunRow is a run in the row of each of its traces. Only where Anchor is set
// does it carry more than the run's identity and completion.
type RunRow struct {
	RunID, ThreadID               string
	Service, Version, Environment string
	Completion                    string
	Quarantined                   bool

	Anchor                       bool
	TraceIDs                     []TraceID
	JoinedBy                     string
	UnfinishedSteps              []string
	Outcome                      string
	RunLimit, StepLimit, Retries int64
	Exhausted                    bool
	Deliveries                   int64
	PoisonPill, NeedsReview      bool
	OrphanSpans, Spans           int64
	Dialects                     []string
	StartNs, EndNs               int64
	Warnings                     []string
	Sampled                      bool
}

// StepRow is one step's account within one run; nil where a number is not
// observable or not known.
type StepRow struct {
	Run                                      uint32 // position in LedgerRow.Runs
	Step                                     string
	Executions, Visits, Operations           int64
	FallbackOperations                       int64
	FallbackRate                             float64
	Calls, CallsFailed, ToolCalls, HTTPCalls int64
	RetriesTransport, RetriesCall            *int64
	RetriesNode, RetriesOrchestrator         *int64
	RetriesWorker, RetriesTotal              *int64
	Fallbacks                                int64
	TokensInput, TokensOutput                int64
	TokensUnknownCalls                       int64
	WastedInput, WastedOutput                int64
	WastedUnknownCalls                       int64
	WastedTimeMs, WastedWaitMs               float64
	WastedCostUSD                            *float64
	Outcome, Factorisation                   string
	WorstCase, StepLimit                     int64
	OverBudget                               bool
	Evidence                                 []string
	ErrorClasses                             []string
	ErrorHTTPStatuses, ErrorCounts           []int64
	StartNs, EndNs                           int64
}

// OperationRow is something the pipeline wanted done once.
type OperationRow struct {
	Run, Index                          uint32 // position in LedgerRow.Runs; number within the run
	Step, Grain, Outcome                string
	Attempts, Retries, Fallbacks, Limit int64
	FirstError, LastError               string
	Futile                              bool
	Provider                            string
	StartNs, EndNs                      int64
	CountsInStep, Settled               bool
	Shows                               uint8 // as of an attempt
}

// Bits of the layers whose repeats the account of a step shows.
const (
	ShowsTransport uint8 = 1 << iota
	ShowsCall
	ShowsNode
	ShowsOrchestrator
	ShowsWorker
)

// AttemptRow is one physical execution at one grain; nil where a number is not known.
type AttemptRow struct {
	Run, Index                   uint32 // position in LedgerRow.Runs; number within the run
	Grain, Step, Name            string
	SpanID                       SpanID // zero for an attempt without a span of its own
	Parent, Operation            int64  // numbers within the run, -1 none
	Ordinal                      int64
	Charge, Evidence, Ending     string
	Handled                      bool
	ErrorClass                   string
	HTTPStatus                   int64
	Model, Provider              string
	FallbackFrom, FallbackReason string
	StartNs, EndNs               int64
	InputTokens, OutputTokens    *int64
	CostUSD                      *float64
	Counted, Wasted              bool
	WastedMs, WaitMs             float64
	ViewOf                       int64
	Request, Midway, Violated    bool
	Hidden                       bool  // a repeat in a layer that the account of its step hides
	Shows                        uint8 // layers of which the account of its step shows repeats: see ShowsTransport
}

// ViolationRow is one missing key of one node's contract, within one run or,
// with Run -1, of a trace that is no run.
type ViolationRow struct {
	Run                  int64 // position in LedgerRow.Runs, -1 none
	Index                uint32
	Node, Key, Direction string
	Count                int64
	TimeNs               int64
}
