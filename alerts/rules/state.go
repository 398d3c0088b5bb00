package rules

import (
	"time"

	"github.com/retryledger/retryledger/alerts/signals"
)

// State is where an alert of one rule on one group stands.
type State string

// The states, in the order in which an alert goes through them.
const (
	StateInactive State = "inactive"
	StatePending  State = "pending"  // breached, for less than the rule's `for`
	StateFiring   State = "firing"   // breached, or within the hold after a breach
	StateResolved State = "resolved" // told as resolved; inactive for the rule
)

// Reason is why an alert changed its state.
type Reason string

// The reasons.
const (
	ReasonBreach     Reason = "breach"          // enough samples, and strictly above the threshold
	ReasonRecovered  Reason = "recovered"       // enough samples, and not above the threshold
	ReasonFewSamples Reason = "too_few_samples" // fewer than min_samples, through the whole hold
	ReasonNoData     Reason = "no_data"         // nothing in the window, through the whole hold
	ReasonRemoved    Reason = "rule_removed"    // the rule is gone or switched off
	ReasonChanged    Reason = "rule_changed"    // the rule watches something else, or its labels differ
)

// observation is what one evaluation says about one group.
type observation int

const (
	seesNothing observation = iota // no event in the window: not a zero
	seesTooFew
	seesRecovery
	seesBreach
)

// evidence tells whether the observation says anything about the ratio.
func (o observation) evidence() bool { return o == seesRecovery || o == seesBreach }

func (o observation) reason() Reason {
	switch o {
	case seesBreach:
		return ReasonBreach
	case seesRecovery:
		return ReasonRecovered
	case seesTooFew:
		return ReasonFewSamples
	default:
		return ReasonNoData
	}
}

// observe judges one sample against the rule.
func (r *Rule) observe(numerator, denominator int64) observation {
	switch {
	case denominator <= 0:
		return seesNothing
	case denominator < r.MinSamples:
		return seesTooFew
	case r.Threshold.below(numerator, denominator):
		return seesBreach
	default:
		return seesRecovery
	}
}

// alert is the state machine of one rule on one group. Instants are nanoseconds since
// the epoch, by the evaluations' instants; 0 is none.
type alert struct {
	rule  *Rule
	group signals.Labels
	// restored: rule only stands for the alert's rule, which is not known as a whole.
	restored bool

	state    State
	since    int64 // of the pending or firing state: the first breach that counts
	fired    int64 // StartsAt
	calm     int64 // the first evaluation after the last breach that saw none: the hold runs from here
	resolved int64

	// What the last evaluation saw, and since when all did.
	seen      Reason
	seenSince int64

	// Of the last evaluation that saw a breach.
	breach                 int64
	numerator, denominator int64
	lasted                 time.Duration // of a stall
}

// circumstance is what an evaluation knows beside the numbers.
type circumstance struct {
	at int64
	// gap: nothing was evaluated for longer than Options.StallAfter before this one.
	// What happened in it is not known, so it counts towards nothing.
	gap bool
	// behind: the ledger lags, so that what is missing may only be late.
	behind bool
}

// step takes one observation and tells whether the state changed, and why.
//
//	inactive, resolved: a breach makes it pending, or firing where `for` is 0.
//	pending: a breach seen at every evaluation of `for` makes it firing; anything else,
//	  missing data too, makes it inactive, for nobody was told. A gap starts `for` anew.
//	firing: ends at the first evaluation without a breach that is keep_firing_for (the
//	  hold) or more after the first one without. A breach in between starts over.
//	  Missing data and samples below the minimum never end it within the hold. After
//	  it they do, under their own reason: of what nobody does any more, nobody can say
//	  that it recovered, but neither that it fails. After a gap, and while the ledger is
//	  behind, the hold starts anew.
func (a *alert) step(o observation, c circumstance) (changed bool, reason Reason) {
	switch a.state {
	case StateInactive, StateResolved:
		if o != seesBreach {
			return false, ""
		}
		a.since, a.calm, a.fired, a.resolved = c.at, 0, 0, 0
		if a.rule.For > 0 {
			a.state = StatePending
		} else {
			a.fire(c.at)
		}
		return true, ReasonBreach
	case StatePending:
		if o != seesBreach {
			a.state = StateInactive
			return true, o.reason()
		}
		if c.gap {
			a.since = c.at
		}
		if c.at-a.since < int64(a.rule.For) {
			return false, ""
		}
		a.fire(c.at)
		return true, ReasonBreach
	case StateFiring:
		if o == seesBreach {
			a.calm = 0
			return false, ""
		}
		if a.calm == 0 || c.gap || c.behind && !o.evidence() {
			a.calm = c.at
		}
		if c.at-a.calm < int64(a.rule.KeepFiringFor) {
			return false, ""
		}
		a.end(c.at)
		return true, o.reason()
	}
	return false, ""
}

func (a *alert) fire(at int64) { a.state, a.fired = StateFiring, at }

// end resolves the alert if it fires; one that is pending ends untold.
func (a *alert) end(at int64) {
	if a.state == StateFiring {
		a.state, a.resolved = StateResolved, at
	} else {
		a.state = StateInactive
	}
}

// held is why an alert that fires goes on although the last evaluation saw no breach, and
// since when it saw that; "" of any other.
func (a *alert) held() (why Reason, since int64) {
	if a.state != StateFiring || a.calm == 0 || a.seen == ReasonBreach {
		return "", 0
	}
	return a.seen, a.seenSince
}

// saw keeps the numbers of a breach, which are those that the alert speaks of.
func (a *alert) saw(at, numerator, denominator int64, lasted time.Duration) {
	a.breach, a.numerator, a.denominator, a.lasted = at, numerator, denominator, lasted
}
