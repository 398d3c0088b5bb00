package report

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/retryledger/retryledger/alerts/signals"
)

func TestTextOfAnAlert(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 3, 2, 11, 50, 0, 0, time.UTC)
	ratio := 9.0 / 412
	firing := Transition{
		At: at, Fingerprint: "6b1f0a3c5d7e9f12", Rule: "step_errors", Group: signals.Labels{Service: "checkout", Step: "res\x1bolve"}, To: "firing", Reason: "breach",
		Numerator: 9, Denominator: 412, Ratio: &ratio, MinSamples: 50, TopError: "RateLimitError 429", Runs: []string{"order-4711", "order-4712"},
	}
	resolved := firing
	resolved.At, resolved.To, resolved.Reason, resolved.Ratio, resolved.TopError, resolved.Runs = at.Add(8*time.Minute), "resolved", "no_data", nil, "", nil
	why := Why{Condition: "operation_error_ratio above 2 % over 2m by service, step", Transitions: []Transition{resolved, firing}}
	assert.Equal(t, `step_errors, service=checkout step=res�olve: resolved since 2026-03-02 11:58:00Z
The rule: operation_error_ratio above 2 % over 2m by service, step, of 50 samples or more

2026-03-02 11:58:00Z  resolved  no data  no data
2026-03-02 11:50:00Z  firing    breach   9 of 412 (2.18 %)  most frequent: RateLimitError 429

Examples of runs: order-4711, order-4712

The numbers of each second:
  retryledger alerts why 6b1f0a3c5d7e9f12
`, why.Text())
	since := at.Add(time.Minute)
	held := Why{Transitions: []Transition{firing}, Held: "no_data", HeldSince: &since}
	assert.Contains(t, held.Text(), "firing since 2026-03-02 11:50:00Z\nIt is held: no data since 2026-03-02 11:51:00Z\n")
	stall := Why{Condition: "evaluation_stalled for more than 30s", Transitions: []Transition{{At: at, Fingerprint: "00", Rule: "evaluation_stalled", To: "firing", Reason: "breach", LastedSeconds: 31}}}
	assert.Equal(t, `evaluation_stalled: firing since 2026-03-02 11:50:00Z
The rule: evaluation_stalled for more than 30s

2026-03-02 11:50:00Z  firing  breach  for 31s

The numbers of each second:
  retryledger alerts why 00
`, stall.Text())
	stall.Condition = ""
	assert.Contains(t, stall.Text(), "Its rule is not in force any more.\n")
	assert.Equal(t, "Nothing is known of this alert.\n", (&Why{}).Text())
}
