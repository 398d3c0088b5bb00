package journal

// The generator reads this file alone, so it holds types and nothing else.
//
//go:generate go run github.com/tinylib/msgp@v1.6.5 -file row.go -o row_gen.go -io=false -tests=false -unexported

//msgp:limit arrays:65536 maps:1024

// row is how one schema.Span lies in a journal: a MessagePack map whose keys
// are short and whose absent keys are zero, so that a field may be added
// without a new format version, and a journal of an older build still reads.
// A key, once given, keeps its meaning for ever.
//
// It is a type of its own, not schema.Span, so that renaming a field of the
// shared row cannot change what lies on disk. Fields whose "not stated" is
// not zero are shifted such that it is, which makes them cost nothing.
type row struct {
	TraceID  [16]byte `msg:"t"`
	SpanID   [8]byte  `msg:"s"`
	ParentID [8]byte  `msg:"p"` // zero: a root

	StartNs    int64 `msg:"b,omitempty"`
	DurationNs int64 `msg:"d,omitempty"` // end - start, wrapping
	ReceivedNs int64 `msg:"r,omitempty"` // received - end, wrapping

	Service     string `msg:"sv,omitempty"`
	Version     string `msg:"ve,omitempty"`
	Environment string `msg:"en,omitempty"`
	Scope       string `msg:"sc,omitempty"`
	Dialect     string `msg:"di,omitempty"`
	Name        string `msg:"n,omitempty"`
	Role        string `msg:"ro,omitempty"`
	ClientKind  bool   `msg:"ck,omitempty"`

	RunID      string `msg:"ri,omitempty"`
	RunIDRank  int8   `msg:"rr,omitempty"`
	ThreadID   string `msg:"th,omitempty"`
	RunAttempt int32  `msg:"ra,omitempty"`
	WorkerID   string `msg:"wo,omitempty"`
	Heartbeat  bool   `msg:"hb,omitempty"`

	Step      string `msg:"st,omitempty"`
	Node      string `msg:"no,omitempty"`
	TaskKey   string `msg:"tk,omitempty"`
	GraphStep int64  `msg:"gs,omitempty"` // + 1
	GraphRoot bool   `msg:"gr,omitempty"`
	NodeRun   int8   `msg:"nr,omitempty"`
	Hidden    bool   `msg:"hi,omitempty"`

	Attempt         int32      `msg:"a,omitempty"`
	AttemptEvidence string     `msg:"ae,omitempty"`
	RetryLayer      string     `msg:"rl,omitempty"`
	AttemptLimit    int32      `msg:"al,omitempty"`
	RetryCount      int64      `msg:"rc,omitempty"` // + 1
	ResendCount     int64      `msg:"rs,omitempty"` // + 1
	RetryEvents     []rowEvent `msg:"re,omitempty"`
	StatedAttempts  int32      `msg:"sa,omitempty"`
	StatedExhausted bool       `msg:"se,omitempty"`

	Fallback        int64  `msg:"f,omitempty"` // + 1
	FallbackFrom    string `msg:"ff,omitempty"`
	FallbackTo      string `msg:"ft,omitempty"`
	FallbackReason  string `msg:"fr,omitempty"`
	FallbackEvents  int32  `msg:"fe,omitempty"`
	FallbackWrapper bool   `msg:"fw,omitempty"`
	RetryWrapper    bool   `msg:"rw,omitempty"`
	NeedsReview     bool   `msg:"nv,omitempty"`

	Failed       bool   `msg:"x,omitempty"`
	StatusOK     bool   `msg:"ok,omitempty"`
	Flow         string `msg:"fl,omitempty"`
	ErrorClass   string `msg:"ec,omitempty"`
	HTTPStatus   int32  `msg:"hs,omitempty"`
	OutputFailed bool   `msg:"of,omitempty"`
	OutputReason string `msg:"or,omitempty"`
	StepFailed   int8   `msg:"sf,omitempty"`

	Model         string `msg:"m,omitempty"`
	ResponseModel string `msg:"rm,omitempty"`
	Provider      string `msg:"pr,omitempty"`
	InputTokens   int64  `msg:"it,omitempty"` // + 1, wrapping
	OutputTokens  int64  `msg:"ot,omitempty"` // + 1, wrapping
	CostBits      uint64 `msg:"co,omitempty"` // IEEE 754 bits, exclusive or those of the usual NaN
	FinishReason  string `msg:"fi,omitempty"`
	InputHash     uint64 `msg:"ih,omitempty"`
	ItemHash      uint64 `msg:"xh,omitempty"`

	Violations      []rowViolation `msg:"vi,omitempty"`
	ContractSpan    bool           `msg:"cs,omitempty"`
	Complete        int8           `msg:"cm,omitempty"`
	UnfinishedSteps []string       `msg:"us,omitempty"`
	RunCancelled    bool           `msg:"rx,omitempty"`
	RunLimit        int32          `msg:"lr,omitempty"`
	StepLimit       int32          `msg:"ls,omitempty"`
	BudgetExhausted bool           `msg:"be,omitempty"`

	Sampled bool `msg:"sm,omitempty"`

	ContentHash uint64 `msg:"ch,omitempty"`
}

// rowEvent is a schema.RetryEvent.
type rowEvent struct {
	TimeNs     int64  `msg:"t,omitempty"`
	Attempt    int32  `msg:"a,omitempty"`
	ErrorClass string `msg:"e,omitempty"`
	HTTPStatus int32  `msg:"h,omitempty"`
}

// rowViolation is a schema.Violation.
type rowViolation struct {
	Node      string `msg:"n,omitempty"`
	Key       string `msg:"k,omitempty"`
	Direction string `msg:"d,omitempty"`
	TimeNs    int64  `msg:"t,omitempty"`
}
