package alerter

import (
	"context"
	"maps"
	"net/url"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"go.uber.org/zap"

	"github.com/retryledger/retryledger/alerts/delivery"
	"github.com/retryledger/retryledger/alerts/report"
	"github.com/retryledger/retryledger/alerts/rules"
	"github.com/retryledger/retryledger/alerts/signals"
	"github.com/retryledger/retryledger/schema"
)

const (
	// explainWithin bounds what a page waits for its explanation. One that is not there in
	// time follows with a later evaluation, which notifies nobody again.
	explainWithin = 500 * time.Millisecond
	// explainAgain is after which time the explanation of an alert that goes on firing is
	// made anew, beside the evaluations; later as it grows older, up to explainSeldom: what
	// is behind it changes less and less, and to look costs the store.
	explainAgain  = time.Minute
	explainSeldom = 10 * time.Minute
	// explainAtOnce bounds the explanations of one evaluation: a store that fails
	// everywhere needs pages more than reasons.
	explainAtOnce = 10
)

type explanation struct {
	rules.Explanation
	startsAt time.Time
	madeAt   time.Time // later than At where the breach is over
}

// explanations are those of alerts that fire.
type explanations map[rules.Key]explanation

func (x explanations) of(rule string, group signals.Labels) rules.Explanation {
	return x[rules.Key{Rule: rule, Group: group}].Explanation
}

// explainer asks the store what is behind alerts. It is not safe for concurrent use.
type explainer struct {
	dashboard string
	within    time.Duration // bounds the questions of one evaluation
	log       *zap.Logger
	known     explanations

	stop  context.CancelFunc // nil while nothing is asked beside
	found chan []finding     // one list when all is asked
}

// question is what to ask about an alert that fires.
type question struct {
	key      rules.Key
	startsAt time.Time
	query    signals.Query
	about    time.Time // the instant of the alert's numbers
	at       time.Time
}

// finding is what came of a question.
type finding struct {
	question
	explanation signals.Explanation
}

// explain brings the explanations of the alerts that fire up to date: of those that begin
// to at once, as far as there is time, of the others when they are there.
func (e *explainer) explain(ctx context.Context, conn driver.Conn, evaluation rules.Evaluation) explanations {
	e.collect()
	within, cancel := context.WithTimeout(ctx, e.within)
	defer cancel()
	next := make(explanations, len(e.known))
	asked := 0
	var later []question
	for i := range evaluation.Alerts {
		alert := &evaluation.Alerts[i]
		key := rules.Key{Rule: alert.Rule, Group: alert.Group}
		x, known := e.known[key]
		if known && !x.startsAt.Equal(alert.StartsAt) {
			x, known = explanation{}, false
		}
		x.startsAt = alert.StartsAt
		x.Dashboard = e.link(alert)
		query, ok := alert.Query()
		if ok && alert.State == rules.StateFiring && conn != nil && x.old(evaluation.Instant) {
			q := question{key, alert.StartsAt, query, alert.Facts.At, evaluation.Instant}
			if !known && asked < explainAtOnce && within.Err() == nil {
				asked++
				if found := e.ask(within, conn, []question{q}); len(found) > 0 {
					x.take(found[0])
				}
			} else {
				later = append(later, q)
			}
		}
		next[key] = x
	}
	e.known = next
	e.askBeside(ctx, conn, later)
	return next
}

// restore takes up what the store keeps of alerts that began to fire before this collector
// was started: it is not asked for again before its time, and what resolved keeps it.
func (e *explainer) restore(ctx context.Context, conn driver.Conn, snapshot *rules.Snapshot) error {
	began := make(map[rules.Key]time.Time)
	var since time.Time
	for i := range snapshot.Alerts {
		if a := &snapshot.Alerts[i]; !a.StartsAt.IsZero() {
			began[rules.Key{Rule: a.Rule, Group: a.Group}] = a.StartsAt
			if since.IsZero() || a.StartsAt.Before(since) {
				since = a.StartsAt
			}
		}
	}
	if len(began) == 0 {
		return nil
	}
	rows, err := schema.AlertTransitions(ctx, conn, schema.AlertFilter{Since: since})
	if err != nil {
		return err //nolint:wrapcheck // schema says what was attempted
	}
	e.known = make(explanations)
	for i := range rows { // the last that says something counts
		t := &rows[i]
		key := rules.Key{Rule: t.Rule, Group: signals.Labels(t.Group)}
		if t.TopError == "" && len(t.Runs) == 0 || !t.StartsAt.Equal(began[key]) {
			continue
		}
		e.known[key] = explanation{rules.Explanation{At: t.At, TopError: t.TopError, TopErrorCount: t.TopErrorCount, Runs: t.Runs}, t.StartsAt, t.At}
	}
	return nil
}

// askAgain lets all explanations be made anew, for runs that they name may be gone.
func (e *explainer) askAgain() {
	e.known = maps.Clone(e.known) // others read what was returned
	for key, x := range e.known {
		x.madeAt = time.Time{}
		e.known[key] = x
	}
}

// old tells whether it is time to ask again.
func (x *explanation) old(at time.Time) bool {
	return at.Sub(x.madeAt) >= min(max(explainAgain, x.madeAt.Sub(x.startsAt)), explainSeldom)
}

func (x *explanation) take(f finding) {
	x.TopError, x.TopErrorCount, x.Runs = f.explanation.TopError, f.explanation.TopErrorCount, f.explanation.Runs
	x.At, x.madeAt = f.about, f.at
}

// ask asks one question after the other, and returns what was answered.
func (e *explainer) ask(ctx context.Context, conn driver.Conn, questions []question) []finding {
	var found []finding
	for _, q := range questions {
		x, err := signals.Explain(ctx, conn, q.query, q.key.Group)
		if err != nil {
			e.log.Debug("An alert goes without its reasons for now.", zap.String("rule", q.key.Rule), zap.Error(err))
			continue
		}
		found = append(found, finding{q, x})
	}
	return found
}

// askBeside asks while evaluations go on, unless it does already.
func (e *explainer) askBeside(ctx context.Context, conn driver.Conn, questions []question) {
	if len(questions) == 0 || e.stop != nil {
		return
	}
	ctx, e.stop = context.WithCancel(ctx)
	e.found = make(chan []finding, 1)
	go func(into chan<- []finding) {
		into <- e.ask(ctx, conn, questions[:min(len(questions), explainAtOnce)])
	}(e.found)
}

// collect takes what was found beside, if all is asked.
func (e *explainer) collect() {
	select {
	case found := <-e.found:
		e.stop()
		e.stop, e.found = nil, nil
		e.known = maps.Clone(e.known) // others read what was returned
		for _, f := range found {
			if x, known := e.known[f.key]; known && x.startsAt.Equal(f.startsAt) {
				x.take(f)
				e.known[f.key] = x
			}
		}
	default: // nothing is asked, or not all yet
	}
}

// end ends what is asked beside.
func (e *explainer) end() {
	if e.stop != nil {
		e.stop()
		<-e.found
		e.stop, e.found = nil, nil
	}
}

// link leads to the dashboard of what the alert is about.
func (e *explainer) link(alert *rules.Alert) string {
	if e.dashboard == "" {
		return ""
	}
	values := url.Values{}
	for _, d := range signals.Dimensions() {
		if value := alert.Group.Get(d); value != "" {
			values.Set("var-"+string(d), value)
		}
	}
	return e.dashboard + "?" + values.Encode()
}

// deliverables are the alerts as delivery takes them.
func deliverables(evaluation rules.Evaluation, explained explanations, link func(fingerprint string) string) []delivery.Alert {
	alerts := make([]delivery.Alert, 0, len(evaluation.Alerts))
	for i := range evaluation.Alerts {
		a := &evaluation.Alerts[i]
		alerts = append(alerts, delivery.Alert{
			Labels: a.Labels, Annotations: a.Annotations(explained.of(a.Rule, a.Group)),
			StartsAt: a.StartsAt, EndsAt: a.EndsAt, GeneratorURL: link(report.Fingerprint(fingerprint(a.Labels))),
		})
	}
	return alerts
}
