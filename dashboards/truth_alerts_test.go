package dashboards

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/retryledger/retryledger/alerts/signals"
	"github.com/retryledger/retryledger/analysis/attribution"
	"github.com/retryledger/retryledger/internal/capturetest"
	"github.com/retryledger/retryledger/internal/storetest"
	"github.com/retryledger/retryledger/schema"
)

func init() { panelTruths[uidAlerts] = alertTruths }

// concerns tells whether an alert is about what the filter chooses.
func (k truth) concerns(g schema.AlertGroup) bool {
	return k.filter.Service == "" || g.Service == "" || g.Service == k.filter.Service
}

func subjectOf(g schema.AlertGroup) string {
	return strings.Join(slices.DeleteFunc([]string{g.Service, g.Environment, g.Version, g.Step, g.Provider}, func(s string) bool { return s == "" }), " · ")
}

// stories are each alert's changes up to the end of the range, in the order of time.
func (k truth) stories() map[string][]schema.AlertTransition {
	found := map[string][]schema.AlertTransition{}
	for _, t := range k.transitions {
		if k.concerns(t.Group) {
			name := t.Rule
			if about := subjectOf(t.Group); about != "" {
				name += " · " + about
			}
			found[name] = append(found[name], t)
		}
	}
	return found
}

func last(story []schema.AlertTransition) schema.AlertTransition { return story[len(story)-1] }

func ratioOf(numerator, denominator int64) any { return part(float64(numerator), float64(denominator)) }

// judgments are the largest ratios of each group in each interval, of the six groups with the
// highest.
func judgments(rule string) func(truth) shown {
	return func(k truth) (s shown) {
		type cell struct {
			at      time.Time
			subject string
		}
		cells, peaks := map[cell]float64{}, map[string]float64{}
		interval := selection{from: k.from, to: k.filter.Until}.interval(120)
		for _, sample := range k.samples {
			if sample.Rule != rule || !k.concerns(sample.Group) || sample.Denominator < sample.MinSamples {
				continue
			}
			at, about := sample.Instant.Truncate(interval), orNotStated(subjectOf(sample.Group))
			value := float64(sample.Numerator) / float64(sample.Denominator)
			cells[cell{at, about}] = max(cells[cell{at, about}], value)
			peaks[about] = max(peaks[about], value)
		}
		order := slices.SortedFunc(maps.Keys(peaks), func(a, b string) int { return cmp.Or(cmp.Compare(peaks[b], peaks[a]), cmp.Compare(a, b)) })
		order = order[:min(len(order), 6)]
		keys := slices.SortedFunc(maps.Keys(cells), func(a, b cell) int { return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.subject, b.subject)) })
		for _, c := range keys {
			if slices.Contains(order, c.subject) {
				s.row(c.at, c.subject, cells[c])
			}
		}
		return s
	}
}

var alertTruths = map[string]panelTruth{
	"At the end of the range": {[]string{"firing", "pages", "pending", "fired in range"}, exactly(func(k truth) (s shown) {
		var firing, pages, pending, began int
		for _, story := range k.stories() {
			switch last(story).To {
			case "firing":
				firing++
				if last(story).Labels["severity"] == "page" {
					pages++
				}
			case "pending":
				pending++
			}
			for _, t := range story {
				if t.To == "firing" && !t.At.Before(k.from) {
					began++
				}
			}
		}
		s.row(firing, pages, pending, began)
		return s
	})},
	"Fires, or is about to": {[]string{"state", "began", "rule", "subject", "severity", "judged", "ratio", "threshold", "error"}, exactly(func(k truth) (s shown) {
		var list []schema.AlertTransition
		for _, story := range k.stories() {
			if to := last(story).To; to == "firing" || to == "pending" {
				list = append(list, last(story))
			}
		}
		slices.SortFunc(list, func(a, b schema.AlertTransition) int {
			return cmp.Or(cmp.Compare(a.To, b.To), cmp.Compare(a.Labels["severity"], b.Labels["severity"]), b.At.Compare(a.At), cmp.Compare(a.Rule, b.Rule), cmp.Compare(subjectOf(a.Group), subjectOf(b.Group)))
		})
		for _, t := range list {
			s.row(t.To, t.At, t.Rule, subjectOf(t.Group), t.Labels["severity"], fmt.Sprintf("%d of %d", t.Numerator, t.Denominator), ratioOf(t.Numerator, t.Denominator), t.Threshold, t.TopError)
		}
		return s
	})},
	"Failed visits of steps, 2 % over 2 min":           {[]string{"time", "subject", "ratio"}, exactly(judgments("step_errors"))},
	"Failed visits by version, 1 % over 3 min":         {[]string{"time", "subject", "ratio"}, exactly(judgments("canary_errors"))},
	"Server errors (5xx) of providers, 15 % over 30 s": {[]string{"time", "subject", "ratio"}, exactly(judgments("provider_server_errors"))},
	"Alerts over time": {[]string{"time", "alert", "state"}, exactly(func(k truth) (s shown) {
		numbers := map[string]int{"inactive": 0, "resolved": 0, "pending": 1, "firing": 2}
		type point struct {
			at    time.Time
			alert string
			state int
		}
		var points []point
		for name, story := range k.stories() {
			state, i := numbers[story[0].From], 0
			for ; i < len(story) && story[i].At.Before(k.from); i++ {
				state = numbers[story[i].To]
			}
			if i == len(story) && state == 0 {
				continue
			}
			points = append(points, point{k.from, name, state})
			for _, t := range story[i:] {
				state = numbers[t.To]
				points = append(points, point{t.At, name, state})
			}
			points = append(points, point{k.filter.Until, name, state})
		}
		slices.SortFunc(points, func(a, b point) int { return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.alert, b.alert)) })
		for _, p := range points {
			s.row(p.at, p.alert, p.state)
		}
		return s
	})},
	"History": {[]string{"at", "rule", "state", "service", "step", "release", "provider", "reason", "judged", "ratio", "threshold", "error", "run"}, exactly(func(k truth) (s shown) {
		list := slices.Clone(k.transitions)
		release := func(g schema.AlertGroup) string {
			return subjectOf(schema.AlertGroup{Environment: g.Version, Version: g.Environment})
		}
		slices.SortFunc(list, func(a, b schema.AlertTransition) int {
			return cmp.Or(b.At.Compare(a.At), cmp.Compare(a.Rule, b.Rule), cmp.Compare(a.Group.Service, b.Group.Service), cmp.Compare(a.Group.Step, b.Group.Step))
		})
		for _, t := range list {
			if k.concerns(t.Group) && !t.At.Before(k.from) {
				s.row(t.At, t.Rule, t.To, t.Group.Service, t.Group.Step, release(t.Group), t.Group.Provider, t.Reason, fmt.Sprintf("%d of %d", t.Numerator, t.Denominator),
					ratioOf(t.Numerator, t.Denominator), t.Threshold, fmt.Sprintf("%s ×%d", t.TopError, t.TopErrorCount), t.Runs[0])
			}
		}
		return s
	})},
	"Versions side by side": {[]string{"service", "version", "visits", "failed visits", "first try", "after retry", "by fallback", "failed"}, func(k truth) (s shown) {
		type version struct{ service, version string }
		counts := k.counted(signals.OperationErrorRatio, func(e signals.Event) string { return e.Labels.Service + "\x00" + e.Labels.Version })
		ways, begun := map[version][3]int{}, map[version]int64{}
		for _, run := range k.ledger.Runs {
			for _, o := range run.Operations {
				at, v := time.Unix(0, o.EndNs), version{run.Service, run.Version}
				if o.Grain != attribution.GrainExecution || at.Before(k.filter.Since) || !at.Before(k.filter.Until) {
					continue
				}
				n := ways[v]
				switch o.Outcome {
				case attribution.OutcomeFirstTry:
					n[0]++
				case attribution.OutcomeAfterRetry:
					n[1]++
				case attribution.OutcomeByFallback:
					n[2]++
				case attribution.OutcomeFailed, attribution.OutcomeFailedAfterRetry, attribution.OutcomeHandled:
				default:
					continue
				}
				ways[v] = n
				seen := k.seenAt(o.EndNs)
				if b, ok := begun[v]; !ok || seen < b {
					begun[v] = seen
				}
			}
		}
		keys := slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
			x, y := version{}, version{}
			x.service, x.version, _ = strings.Cut(a, "\x00")
			y.service, y.version, _ = strings.Cut(b, "\x00")
			return cmp.Or(cmp.Compare(orNotStated(x.service), orNotStated(y.service)), cmp.Compare(begun[y], begun[x]), cmp.Compare(orNotStated(x.version), orNotStated(y.version)))
		})
		for _, key := range keys {
			service, release, _ := strings.Cut(key, "\x00")
			n, way := counts[key], ways[version{service, release}]
			of := func(i int) float64 { return float64(way[i]) / float64(n[1]) }
			s.row(orNotStated(service), orNotStated(release), n[1], n[0], of(0), of(1), of(2), float64(n[0])/float64(n[1]))
		}
		return s
	}},
}

// TestThresholdsAreThoseOfTheSamples: the dashed line is what the rule had then.
func TestThresholdsAreThoseOfTheSamples(t *testing.T) {
	t.Parallel()
	store := storetest.Of(t, capturetest.All(t)[:1], "checkout")
	insertHistory(t, store)
	whole := everything(documents(t)[uidAlerts])
	samples, err := schema.AlertSamples(context.Background(), store.Conn, schema.AlertFilter{Since: whole.from, Until: whole.to, Rule: "step_errors"})
	require.NoError(t, err)
	p := panelOf(t, uidAlerts, "Failed visits of steps, 2 % over 2 min")
	found, err := asked(t, store.Conn, whole.expanded(t, p.Targets[1].RawSQL, p.MaxDataPoints))
	require.NoError(t, err)
	want := map[time.Time]float64{}
	for _, s := range samples {
		if s.Denominator >= s.MinSamples {
			at := s.Instant.Truncate(whole.interval(p.MaxDataPoints))
			want[at] = max(want[at], s.Threshold)
		}
	}
	require.Len(t, found.rows, len(want))
	for _, row := range found.rows {
		at, _ := row["time"].(time.Time)
		require.InDelta(t, want[at.UTC()], row["threshold"], 1e-12)
	}
}
