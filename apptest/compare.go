//go:build linux

package apptest

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/retryledger/retryledger/analysis/answer"
)

// settleWithin bounds how long the ledger may take to show everything.
const settleWithin = 3 * time.Minute

// settle waits until both collectors answer with the truth.
func (r *runner) settle(ctx context.Context) error {
	deadline := time.Now().Add(settleWithin)
	for {
		var wrong []string
		for _, n := range r.c.collectors {
			found, err := r.compare(ctx, n)
			if err != nil {
				found = []string{err.Error()}
			}
			wrong = append(wrong, found...)
		}
		if len(wrong) == 0 {
			return nil
		}
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("wait for the ledger: %w", err)
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%w, after %v:\n%s", errWrong, settleWithin, strings.Join(wrong[:min(len(wrong), 20)], "\n"))
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// compare tells where the answer of a collector differs from the truth.
func (r *runner) compare(ctx context.Context, n *node) ([]string, error) {
	var status answer.Status
	if err := n.place.Get(ctx, "/api/v1/status", &status); err != nil {
		return nil, err
	}
	var top answer.Top
	if err := n.place.Get(ctx, "/api/v1/top?limit=0", &top); err != nil {
		return nil, err
	}
	r.report.Lost = max(0, r.truth.Spans-status.Spans)
	r.report.Double = max(0, status.Spans-r.truth.Spans)
	var out []string
	differ := func(what string, got, want int64) {
		if got != want {
			out = append(out, fmt.Sprintf("%s says %s: %d instead of %d", n.name, what, got, want))
		}
	}
	differ("spans", status.Spans, r.truth.Spans)
	differ("runs", int64(top.Runs), int64(r.truth.Runs))
	differ("complete runs", int64(top.Completion["complete"]), int64(r.truth.Complete))
	differ("steps", int64(len(top.Steps)), int64(len(r.truth.Steps)))
	for i := range top.Steps {
		s := &top.Steps[i]
		key := stepKey{s.Service, s.Step}
		want := r.truth.Steps[key]
		if want == nil {
			out = append(out, fmt.Sprintf("%s knows a step %s that nobody ran", n.name, key))
			continue
		}
		r.report.Double += int64(max(0, s.Executions-want.Executions) + max(0, s.Calls-want.Calls))
		for _, c := range []struct {
			what      string
			got, want int64
		}{
			{"executions", int64(s.Executions), int64(want.Executions)},
			{"visits", int64(s.Visits), int64(want.Visits)},
			{"node retries", known(s.Retries.Node), int64(want.NodeRetries)},
			{"orchestrator retries", known(s.Retries.Orchestrator), int64(want.Orchestrator)},
			{"calls", int64(s.Calls), int64(want.Calls)},
			{"failed calls", int64(s.CallsFailed), int64(want.CallsFailed)},
			{"call retries", known(s.Retries.Call), int64(want.CallRetries)},
			{"fallbacks", int64(s.Fallbacks), int64(want.Fallbacks)},
			{"input tokens", s.Tokens.Input, want.InputTokens},
			{"output tokens", s.Tokens.Output, want.OutputTokens},
		} {
			differ(c.what+" of "+key.String(), c.got, c.want)
		}
	}
	return out, nil
}

// known is -1 for a number that is hidden.
func known(n *int) int64 {
	if n == nil {
		return -1
	}
	return int64(*n)
}
