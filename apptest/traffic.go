//go:build linux

package apptest

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

// stepKey names a step of a service.
type stepKey struct{ service, step string }

// Counts are what an application counts of one step while it runs: the truth that the
// ledger must equal.
type Counts struct {
	Executions, Visits, NodeRetries, Orchestrator int
	Calls, CallsFailed, CallRetries, Fallbacks    int
	InputTokens, OutputTokens                     int64
}

// Truth is what really happened in all runs that were sent.
type Truth struct {
	Runs, Complete int
	Spans          int64 // distinct ones
	Steps          map[stepKey]*Counts
}

func newTruth() *Truth { return &Truth{Steps: make(map[stepKey]*Counts)} }

func (t *Truth) step(service, step string) *Counts {
	c := t.Steps[stepKey{service, step}]
	if c == nil {
		c = &Counts{}
		t.Steps[stepKey{service, step}] = c
	}
	return c
}

// traffic makes runs of pipelines: of two to five steps, each with a retry policy that
// is sometimes needed, model calls that are tried again or fall back, and an
// orchestrator that enters a lost step once more. What it makes depends on its random
// source alone, but for the times, which are now.
type traffic struct {
	r     *rand.Rand
	truth *Truth
	made  uint64
	seed  uint64
}

var services = []string{"checkout", "support", "billing"}
var steps = []string{"plan", "retrieve", "resolve", "rank", "write"}

// run makes one run and counts it. Its spans are in the order in which they ended.
func (g *traffic) run(now time.Time) []sentSpan {
	g.made++
	run := &runMaker{g: g, at: now.Add(-time.Second), service: services[g.r.IntN(len(services))]}
	binary.BigEndian.PutUint64(run.trace[:8], g.seed)
	binary.BigEndian.PutUint64(run.trace[8:], g.made)
	root := run.open(pcommon.SpanID{}, "pipeline")
	for _, step := range steps[:2+g.r.IntN(len(steps)-1)] {
		run.enter(root.SpanID(), step)
	}
	complete := g.r.IntN(10) > 0
	root.Attributes().PutBool("run.complete", complete)
	run.close(root, false)
	g.truth.Runs++
	if complete {
		g.truth.Complete++
	}
	g.truth.Spans += int64(len(run.ended))
	out := make([]sentSpan, len(run.ended))
	for i, s := range run.ended {
		out[i] = sentSpan{run.service, s}
	}
	return out
}

type runMaker struct {
	g       *traffic
	trace   pcommon.TraceID
	service string
	at      time.Time
	spans   uint64
	ended   []ptrace.Span
}

func (m *runMaker) wait() { m.at = m.at.Add(time.Duration(3+m.g.r.IntN(8)) * time.Millisecond) }

func (m *runMaker) open(parent pcommon.SpanID, name string) ptrace.Span {
	m.wait()
	m.spans++
	s := ptrace.NewSpan()
	s.SetTraceID(m.trace)
	var id pcommon.SpanID
	binary.BigEndian.PutUint64(id[:], m.spans)
	s.SetSpanID(id)
	s.SetParentSpanID(parent)
	s.SetName(name)
	s.SetStartTimestamp(pcommon.NewTimestampFromTime(m.at))
	return s
}

func (m *runMaker) close(s ptrace.Span, failed bool) {
	m.wait()
	s.SetEndTimestamp(pcommon.NewTimestampFromTime(m.at))
	if failed {
		s.Status().SetCode(ptrace.StatusCodeError)
		s.Status().SetMessage("UpstreamError: 503")
		s.Attributes().PutStr("error.type", "UpstreamError")
		s.Attributes().PutInt("http.response.status_code", 503)
	}
	m.ended = append(m.ended, s)
}

// enter visits a step; where its policy loses, the orchestrator sometimes enters again.
func (m *runMaker) enter(parent pcommon.SpanID, step string) {
	c := m.g.truth.step(m.service, step)
	c.Visits++
	for round := range 2 {
		if round > 0 {
			c.Orchestrator++
		}
		won := m.policy(parent, step, c)
		if won || m.g.r.IntN(2) == 0 {
			return
		}
	}
}

// policy makes up to three attempts of a step, and tells whether one succeeded.
func (m *runMaker) policy(parent pcommon.SpanID, step string, c *Counts) bool {
	const attempts = 3
	for attempt := 1; attempt <= attempts; attempt++ {
		s := m.open(parent, step)
		s.Attributes().PutStr("step", step)
		s.Attributes().PutInt("retry.attempt", int64(attempt))
		s.Attributes().PutInt("retry.max_attempts", attempts)
		c.Executions++
		if attempt > 1 {
			c.NodeRetries++
		}
		failed := !m.ask(s.SpanID(), c)
		m.close(s, failed)
		if !failed {
			return true
		}
	}
	return false
}

// ask calls a model, up to twice, and then falls back to another one sometimes.
func (m *runMaker) ask(parent pcommon.SpanID, c *Counts) bool {
	for attempt := range 2 {
		if attempt > 0 {
			c.CallRetries++
		}
		if m.call(parent, "large", -1, c, m.g.r.IntN(100) < 55) {
			return true
		}
	}
	if m.g.r.IntN(2) == 0 {
		return false
	}
	c.Fallbacks++
	return m.call(parent, "small", 1, c, m.g.r.IntN(100) < 60)
}

func (m *runMaker) call(parent pcommon.SpanID, model string, candidate int64, c *Counts, ok bool) bool {
	s := m.open(parent, "chat "+model)
	s.SetKind(ptrace.SpanKindClient)
	a := s.Attributes()
	a.PutStr("gen_ai.operation.name", "chat")
	a.PutStr("gen_ai.provider.name", "acme")
	a.PutStr("gen_ai.request.model", model)
	if candidate >= 0 {
		a.PutInt("fallback", candidate)
		a.PutStr("fallback.from", "large")
	}
	c.Calls++
	if ok {
		in, out := int64(100+m.g.r.IntN(900)), int64(10+m.g.r.IntN(90))
		a.PutInt("gen_ai.usage.input_tokens", in)
		a.PutInt("gen_ai.usage.output_tokens", out)
		c.InputTokens += in
		c.OutputTokens += out
	} else {
		c.CallsFailed++
	}
	m.close(s, !ok)
	return ok
}

// request is an export request of these spans, which may be of several runs.
func (g *traffic) request(batch []sentSpan) ptrace.Traces {
	td := ptrace.NewTraces()
	into := make(map[string]ptrace.SpanSlice)
	for _, s := range batch {
		list, ok := into[s.service]
		if !ok {
			rs := td.ResourceSpans().AppendEmpty()
			rs.Resource().Attributes().PutStr("service.name", s.service)
			ss := rs.ScopeSpans().AppendEmpty()
			ss.Scope().SetName("apptest")
			list = ss.Spans()
			into[s.service] = list
		}
		s.span.CopyTo(list.AppendEmpty())
	}
	return td
}

// sentSpan is a span and the service that sends it.
type sentSpan struct {
	service string
	span    ptrace.Span
}

func (k stepKey) String() string { return fmt.Sprintf("%s of %s", k.step, k.service) }
