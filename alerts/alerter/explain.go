package alerter

import (
	"context"
	"net/url"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"go.uber.org/zap"

	"github.com/retryledger/retryledger/alerts/delivery"
	"github.com/retryledger/retryledger/alerts/report"
	"github.com/retryledger/retryledger/alerts/rules"
	"github.com/retryledger/retryledger/alerts/signals"
)

const (
	// explainWithin bounds what a page waits for its explanation. One that is not there in
	// time follows with a later evaluation, which notifies nobody again.
	explainWithin = 500 * time.Millisecond
	// explainEvery is how often the explanation of an alert that goes on firing is made anew.
	explainEvery = time.Minute
	// explainAtOnce bounds the explanations of one evaluation: a store that fails
	// everywhere needs pages more than reasons.
	explainAtOnce = 10
)

// alertKey is what one rule says about one group.
type alertKey struct {
	rule  string
	group signals.Labels
}

type explanation struct {
	rules.Explanation
	startsAt time.Time
	madeAt   time.Time
}

// explanations are those of alerts that fire.
type explanations map[alertKey]explanation

func (x explanations) of(rule string, group signals.Labels) rules.Explanation {
	return x[alertKey{rule, group}].Explanation
}

// explainer asks the store what is behind alerts.
type explainer struct {
	dashboard string
	within    time.Duration // bounds the questions of one evaluation
	log       *zap.Logger
	known     explanations
}

// explain brings the explanations of the alerts that fire up to date, as far as there
// is time.
func (e *explainer) explain(ctx context.Context, conn driver.Conn, evaluation rules.Evaluation) explanations {
	ctx, cancel := context.WithTimeout(ctx, e.within)
	defer cancel()
	next := make(explanations, len(e.known))
	asked := 0
	for i := range evaluation.Alerts {
		alert := &evaluation.Alerts[i]
		key := alertKey{alert.Rule, alert.Group}
		x, known := e.known[key]
		if known && !x.startsAt.Equal(alert.StartsAt) {
			x, known = explanation{}, false
		}
		x.startsAt = alert.StartsAt
		x.Dashboard = e.link(alert)
		query, ok := alert.Query()
		old := !known || evaluation.Instant.Sub(x.madeAt) >= explainEvery
		if ok && old && alert.State == rules.StateFiring && conn != nil && asked < explainAtOnce && ctx.Err() == nil {
			asked++
			found, err := signals.Explain(ctx, conn, query, alert.Group)
			if err == nil {
				x.TopError, x.TopErrorCount, x.Runs = found.TopError, found.TopErrorCount, found.Runs
				x.madeAt = evaluation.Instant
			} else {
				e.log.Debug("An alert goes without its reasons for now.", zap.String("rule", alert.Rule), zap.Error(err))
			}
		}
		next[key] = x
	}
	e.known = next
	return next
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
