package ruletest

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/retryledger/retryledger/alerts/internal/strictyaml"
	"github.com/retryledger/retryledger/alerts/signals"
)

// counts are one signal's numbers second by second, the first at the test's start.
type counts struct {
	signal        signals.Signal
	labels        signals.Labels
	failed, total []int64
	late          time.Duration // after which the numbers are known
}

func parseCounts(f *strictyaml.File, n *yaml.Node) counts {
	var c counts
	var labels *yaml.Node
	before := f.Mistakes()
	f.Fields(n, "an entry of counts", map[string]func(*yaml.Node){
		"signal": func(n *yaml.Node) {
			v := f.Text(n, "signal")
			if v.Given() && signals.Signal(v.V).Dimensions() == nil {
				var names []string
				for _, s := range signals.All() {
					names = append(names, string(s))
				}
				f.Add(n.Line, "there is no signal %q%s to count; there are %s", strictyaml.Shown(v.V), strictyaml.Meant(v.V, names), strings.Join(names, ", "))
			}
			c.signal = signals.Signal(v.V)
		},
		"labels": func(n *yaml.Node) { labels = n },
		"failed": func(n *yaml.Node) { c.failed = parseSeries(f, n, "failed") },
		"total":  func(n *yaml.Node) { c.total = parseSeries(f, n, "total") },
		"late":   func(n *yaml.Node) { c.late = f.Duration(n, "late", 0, maxLength).V },
	})
	if f.Mistakes() > before {
		return c // what is missing may be what is wrong
	}
	if c.signal == "" || c.total == nil {
		f.Add(n.Line, "an entry of counts has at least a signal and a total, such as total: 10x60 (ten a second for sixty seconds)")
	} else if labels != nil {
		c.labels = parseDimensions(f, labels, c.signal)
	}
	return c
}

// parseSeries reads numbers per second: "5" once, "5x60" for sixty seconds, "_" or
// "_x60" for none. A number of 0 and none are the same for a sum.
func parseSeries(f *strictyaml.File, n *yaml.Node, what string) []int64 {
	v := f.Text(n, what)
	values := []int64{}
	for _, word := range strings.Fields(v.V) {
		number, times, repeated := strings.Cut(word, "x")
		count := int64(1)
		var err error
		if repeated {
			count, err = strconv.ParseInt(times, 10, 64)
		}
		value := int64(0)
		if err == nil && number != "_" {
			value, err = strconv.ParseInt(number, 10, 64)
		}
		if err != nil || count < 1 || value < 0 || value > 1_000_000_000_000 {
			f.Add(v.Line, "%s: %q is no number per second: write 5, 5x60 for sixty seconds, _x60 for nothing", what, strictyaml.Shown(word))
			return nil
		}
		if int64(len(values))+count > int64(maxLength/time.Second) {
			f.Add(v.Line, "%s lasts longer than %s", what, strictyaml.Short(maxLength))
			return nil
		}
		values = append(values, slices.Repeat([]int64{value}, int(count))...)
	}
	return values
}

// known is an event from when it is known on.
type known struct {
	signals.Event
	fromNs int64
}

// events are the counts' events.
func (c *counts) events(startNs int64) []known {
	var all []known
	at := func(values []int64, i int) int64 {
		if i < len(values) {
			return values[i]
		}
		return 0
	}
	for i := range max(len(c.failed), len(c.total)) {
		failed, total := at(c.failed, i), at(c.total, i)
		if failed == 0 && total == 0 {
			continue
		}
		ns := startNs + int64(i)*int64(time.Second)
		all = append(all, known{
			Event:  signals.Event{Signal: c.signal, Labels: c.labels, AtNs: ns, Numerator: failed, Denominator: total},
			fromNs: ns + int64(c.late),
		})
	}
	return all
}
