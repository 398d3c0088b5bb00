package dashboards

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/retryledger/retryledger/alerts/signals"
	"github.com/retryledger/retryledger/analysis/attribution"
	"github.com/retryledger/retryledger/schema"
)

func init() { panelTruths[uidProviders] = providerTruths }

// counted adds up a signal's events in the filter's range, by a label or by nothing.
func (k truth) counted(signal signals.Signal, by func(signals.Event) string) map[string][2]int64 {
	sums := map[string][2]int64{}
	for _, e := range k.events {
		at := time.Unix(0, e.AtNs)
		if e.Signal != signal || k.filter.Service != "" && e.Labels.Service != k.filter.Service || at.Before(k.filter.Since) || !at.Before(k.filter.Until) {
			continue
		}
		sum := sums[by(e)]
		sums[by(e)] = [2]int64{sum[0] + e.Numerator, sum[1] + e.Denominator}
	}
	return sums
}

func byNothing(signals.Event) string       { return "" }
func byProvider(e signals.Event) string    { return orNotStated(e.Labels.Provider) }
func share(n [2]int64) any                 { return part(float64(n[0]), float64(n[1])) }
func sumOf(m map[string][2]int64) [2]int64 { return m[""] }

func orNotStated(name string) string { return cmp.Or(name, notStated) }

// part is nil where there is nothing to take a part of.
func part(n, of float64) any {
	if of == 0 {
		return nil
	}
	return n / of
}

// attempts calls f for each attempt that ended in the filter's range.
func (k truth) attempts(f func(attribution.Run, attribution.Attempt)) {
	for _, run := range k.ledger.Runs {
		if k.filter.Service != "" && run.Service != k.filter.Service {
			continue
		}
		for _, a := range run.Attempts {
			if at := time.Unix(0, a.EndNs); !at.Before(k.filter.Since) && at.Before(k.filter.Until) {
				f(run, a)
			}
		}
	}
}

// ends are how a group's requests ended.
type ends struct{ served, throttled, otherwise, serverErrors, unknown, all float64 }

func (e ends) shares() []any {
	return []any{part(e.served, e.all), part(e.throttled, e.all), part(e.otherwise, e.all), part(e.serverErrors, e.all), part(e.unknown, e.all)}
}

// requests are how requests ended, by a name of each.
func (k truth) requests(by func(attribution.Attempt) string) map[string]ends {
	found := map[string]ends{}
	k.attempts(func(_ attribution.Run, a attribution.Attempt) {
		if !a.Request || !slices.Contains([]attribution.Ending{"succeeded", "failed", "unknown"}, a.Ending) {
			return
		}
		e := found[by(a)]
		e.all++
		var serverError, throttled int64 // as the alerts judge it
		row := schema.LedgerRow{Runs: []schema.RunRow{{}}, Attempts: []schema.AttemptRow{{
			Request: true, Ending: string(a.Ending), HTTPStatus: int64(a.HTTPStatus), ErrorClass: a.ErrorClass,
		}}}
		for _, event := range signals.Events(&row) {
			switch event.Signal {
			case signals.ServerErrorRatio:
				serverError = event.Numerator
			case signals.ThrottledRatio:
				throttled = event.Numerator
			}
		}
		switch {
		case serverError > 0:
			e.serverErrors++
		case throttled > 0:
			e.throttled++
		case a.Ending == attribution.EndingSucceeded:
			e.served++
		case a.Ending == attribution.EndingFailed:
			e.otherwise++
		default:
			e.unknown++
		}
		found[by(a)] = e
	})
	return found
}

// responses are how model calls ended: completed, broke off, failed before.
func (k truth) responses(by func(attribution.Run, attribution.Attempt) [3]string) map[[3]string][3]float64 {
	found := map[[3]string][3]float64{}
	k.attempts(func(run attribution.Run, a attribution.Attempt) {
		if a.Grain != attribution.GrainCall || !a.Counted || !a.Midway && a.Ending != attribution.EndingSucceeded && a.Ending != attribution.EndingFailed {
			return
		}
		n := found[by(run, a)]
		switch {
		case a.Midway:
			n[1]++
		case a.Ending == attribution.EndingFailed:
			n[2]++
		default:
			n[0]++
		}
		found[by(run, a)] = n
	})
	return found
}

func ofAll(attribution.Run, attribution.Attempt) [3]string { return [3]string{} }

// switches are fallbacks and how many of them succeeded and failed, by from, to and error.
func (k truth) switches() map[[3]string][3]float64 {
	found := map[[3]string][3]float64{}
	k.attempts(func(_ attribution.Run, a attribution.Attempt) {
		if a.Charge != attribution.ChargeFallback {
			return
		}
		key := [3]string{orNotStated(a.FallbackFrom), cmp.Or(a.Model, a.Provider, a.Name), orNotStated(a.FallbackReason)}
		n := found[key]
		n[0]++
		switch a.Ending {
		case attribution.EndingSucceeded:
			n[1]++
		case attribution.EndingFailed:
			n[2]++
		}
		found[key] = n
	})
	return found
}

func total(m map[[3]string][3]float64) (sum [3]float64) {
	for _, n := range m {
		for i := range sum {
			sum[i] += n[i]
		}
	}
	return sum
}

// overPoints adds a row for each interval.
func (k truth) overPoints(row func(point truth, at time.Time)) {
	for _, f := range k.points(k.pointInterval()) {
		point := k
		point.filter = f
		row(point, f.Since.Truncate(k.pointInterval()))
	}
}

// byProviderOverTime is a signal's ratio of each provider in each interval.
func byProviderOverTime(signal signals.Signal) func(truth) shown {
	return func(k truth) (s shown) {
		k.overPoints(func(point truth, at time.Time) {
			sums := point.counted(signal, byProvider)
			for _, name := range slices.Sorted(maps.Keys(sums)) {
				s.row(at, name, share(sums[name]))
			}
		})
		return s
	}
}

var providerTruths = map[string]panelTruth{
	"How requests to providers ended": {[]string{"requests", "served", "throttled (429)", "failed otherwise", "server error (5xx)", "unknown"}, func(k truth) (s shown) {
		e := k.requests(func(attribution.Attempt) string { return "" })[""]
		s.row(append([]any{sumOf(k.counted(signals.ServerErrorRatio, byNothing))[1]}, e.shares()...)...)
		return s
	}},
	"Fallbacks": {[]string{"fallbacks", "helped"}, func(k truth) (s shown) {
		if n := total(k.switches()); n[0] > 0 {
			s.row(n[0], part(n[1], n[1]+n[2]))
		}
		return s
	}},
	"Responses that broke off": {[]string{"broke off"}, func(k truth) (s shown) {
		s.row(share(sumOf(k.counted(signals.StreamMidwayFailureRatio, byNothing))))
		return s
	}},
	"Server errors (5xx) by provider": {[]string{"time", "provider", "server errors"}, byProviderOverTime(signals.ServerErrorRatio)},
	"Throttled (429) by provider":     {[]string{"time", "provider", "throttled"}, byProviderOverTime(signals.ThrottledRatio)},
	"Circuit breakers":                {[]string{"time", "provider", "state"}, exactly(breakersOverTime)},
	"Why breakers changed": {[]string{"at", "provider", "change", "why"}, exactly(func(k truth) (s shown) {
		list := breakerHistory()
		slices.SortStableFunc(list, func(a, b schema.BreakerTransition) int {
			return cmp.Or(b.At.Compare(a.At), cmp.Compare(orNotStated(a.Provider), orNotStated(b.Provider)))
		})
		for _, b := range list {
			if !b.At.Before(k.from) && b.At.Before(k.filter.Until) {
				s.row(b.At, orNotStated(b.Provider), b.From+" → "+b.To, b.Why)
			}
		}
		return s
	})},
	"Providers": {[]string{"provider", "requests", "served", "throttled (429)", "failed otherwise", "server error (5xx)", "unknown"}, func(k truth) (s shown) {
		found := k.requests(func(a attribution.Attempt) string { return orNotStated(a.Provider) })
		names := slices.SortedFunc(maps.Keys(found), func(a, b string) int { return cmp.Or(cmp.Compare(found[b].all, found[a].all), cmp.Compare(a, b)) })
		for _, name := range names {
			s.row(append([]any{name, found[name].all}, found[name].shares()...)...)
		}
		return s
	}},
	"What providers answered instead": {[]string{"provider", "status", "error", "requests", "share"}, func(k truth) (s shown) {
		type key struct{ provider, status, class string }
		counts, all := map[key]float64{}, k.requests(func(a attribution.Attempt) string { return orNotStated(a.Provider) })
		by := func(a attribution.Attempt) key {
			status := "–"
			if a.HTTPStatus != 0 {
				status = text(a.HTTPStatus)
			}
			return key{orNotStated(a.Provider), status, orNotStated(a.ErrorClass)}
		}
		keys := map[string]key{}
		failed := k.requests(func(a attribution.Attempt) string {
			name := by(a)
			keys[name.provider+"|"+name.status+"|"+name.class] = name
			return name.provider + "|" + name.status + "|" + name.class
		})
		for text, e := range failed {
			if n := e.all - e.served; n > 0 {
				counts[keys[text]] = n
			}
		}
		order := slices.SortedFunc(maps.Keys(counts), func(a, b key) int {
			return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a.provider, b.provider), cmp.Compare(a.status, b.status), cmp.Compare(a.class, b.class))
		})
		for _, name := range order[:min(len(order), 100)] {
			s.row(name.provider, name.status, name.class, counts[name], counts[name]/all[name.provider].all)
		}
		return s
	}},
	"Requests over time": {[]string{"time", "served", "throttled (429)", "failed otherwise", "server error (5xx)", "unknown"}, func(k truth) (s shown) {
		k.overPoints(func(point truth, at time.Time) {
			if e := point.requests(func(attribution.Attempt) string { return "" })[""]; e.all > 0 {
				s.row(at, e.served, e.throttled, e.otherwise, e.serverErrors, e.unknown)
			}
		})
		return s
	}},
	"From which candidate to which, and after which error": {[]string{"from", "to", "after", "fallbacks", "helped"}, func(k truth) (s shown) {
		found := k.switches()
		order := slices.SortedFunc(maps.Keys(found), func(a, b [3]string) int {
			return cmp.Or(cmp.Compare(found[b][0], found[a][0]), slices.Compare(a[:], b[:]))
		})
		for _, key := range order[:min(len(order), 100)] {
			n := found[key]
			s.row(key[0], key[1], key[2], n[0], part(n[1], n[1]+n[2]))
		}
		return s
	}},
	"Fallbacks over time": {[]string{"time", "helped", "failed", "undecided"}, func(k truth) (s shown) {
		k.overPoints(func(point truth, at time.Time) {
			if n := total(point.switches()); n[0] > 0 {
				s.row(at, n[1], n[2], n[0]-n[1]-n[2])
			}
		})
		return s
	}},
	"Calls that failed before and after the first chunk": {[]string{"time", "before", "after"}, func(k truth) (s shown) {
		k.overPoints(func(point truth, at time.Time) {
			if n := total(point.responses(ofAll)); n[1]+n[2] > 0 {
				s.row(at, n[2], n[1])
			}
		})
		return s
	}},
	"Where responses broke off": {[]string{"provider", "step", "service", "before", "after", "share"}, func(k truth) (s shown) {
		found := k.responses(func(run attribution.Run, a attribution.Attempt) [3]string {
			return [3]string{orNotStated(a.Provider), orNotStated(run.Service), orNotStated(a.Step)}
		})
		order := slices.SortedFunc(maps.Keys(found), func(a, b [3]string) int {
			return cmp.Or(cmp.Compare(found[b][1], found[a][1]), cmp.Compare(found[b][2], found[a][2]), slices.Compare(a[:], b[:]))
		})
		rows := 0
		for _, key := range order {
			if n := found[key]; n[1]+n[2] > 0 && rows < 100 {
				s.row(key[0], key[2], key[1], n[2], n[1], part(n[1], n[0]+n[1]))
				rows++
			}
		}
		return s
	}},
}

// breakersOverTime is the state of each breaker at the beginning of the range, after each
// change, and at its end.
func breakersOverTime(k truth) (s shown) {
	type point struct {
		at       time.Time
		provider string
		state    int
	}
	numbers := map[string]int{"closed": 0, "half_open": 1, "open": 2}
	byName := map[string][]schema.BreakerTransition{}
	for _, b := range breakerHistory() {
		if b.At.Before(k.filter.Until) {
			byName[orNotStated(b.Provider)] = append(byName[orNotStated(b.Provider)], b)
		}
	}
	var points []point
	for name, changes := range byName {
		state := numbers[changes[0].From]
		i := 0
		for ; i < len(changes) && changes[i].At.Before(k.from); i++ {
			state = numbers[changes[i].To]
		}
		points = append(points, point{k.from, name, state})
		for _, c := range changes[i:] {
			state = numbers[c.To]
			points = append(points, point{c.At, name, state})
		}
		points = append(points, point{k.filter.Until, name, state})
	}
	slices.SortFunc(points, func(a, b point) int { return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.provider, b.provider)) })
	for _, p := range points {
		s.row(p.at, p.provider, p.state)
	}
	return s
}
