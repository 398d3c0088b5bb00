//go:build linux

package apptest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
)

// Fault is one kind of harm.
type Fault string

// Faults of messages: what networks and senders do.
const (
	Duplicate Fault = "duplicate" // a batch that was acknowledged is sent again, to either collector
	Recut     Fault = "recut"     // spans that were acknowledged are sent again in other batches
	Delay     Fault = "delay"     // a batch waits until the others of its wave are through
	Reorder   Fault = "reorder"   // a wave's spans are cut into batches in any order
	Cut       Fault = "cut"       // the connection ends after the collector took the batch, before its answer
)

// Faults of processes and disks.
const (
	KillCollector Fault = "kill-collector" // kill -9 of one collector, which is started again
	KillBoth      Fault = "kill-both"      // of both collectors at once
	KillEngine    Fault = "kill-engine"    // of the engine that both share
	KillAll       Fault = "kill-all"       // of all three
	KillRecovery  Fault = "kill-recovery"  // of a collector, and again while it recovers
	StopEngine    Fault = "stop-engine"    // the engine stands still for a while (SIGSTOP), then goes on
	StopCollector Fault = "stop-collector" // the same with a collector
	StopMerges    Fault = "stop-merges"    // the engine merges no parts for a while
	FillDisk      Fault = "fill-disk"      // no space is left for the journal of one collector
	PowerCut      Fault = "power-cut"      // everything ends, and the disk has what it confirmed; it needs one of its own
)

var (
	messageFaults = []Fault{Duplicate, Recut, Delay, Reorder, Cut}
	processFaults = []Fault{KillCollector, KillBoth, KillEngine, KillAll, KillRecovery, StopEngine, StopCollector, StopMerges, FillDisk}
)

// ParseFaults reads kinds of faults of processes such as "kill-engine,fill-disk"; "" is all.
func ParseFaults(text string) ([]Fault, error) {
	if text == "" {
		return processFaults, nil
	}
	known := append(slices.Clone(processFaults), PowerCut)
	var kinds []Fault
	for name := range strings.SplitSeq(text, ",") {
		if !slices.Contains(known, Fault(name)) {
			return nil, fmt.Errorf("%q is no fault of a process; there are %v", name, known)
		}
		kinds = append(kinds, Fault(name))
	}
	return kinds, nil
}

// Wave is some traffic, and what happens meanwhile.
type Wave struct {
	Seed     uint64  // of the traffic and of the faults of its messages
	Runs     int     // that it sends
	Messages []Fault // that may happen to its batches
	Process  Fault   // that happens while they are sent, "" for none
	Victim   int     // the collector that it happens to
}

// Plan is what one test does. Two plans of one seed and size are the same.
type Plan struct {
	Seed  uint64
	Waves []Wave
}

// cutsPower tells whether the plan needs a disk of its own.
func (p Plan) cutsPower() bool {
	return slices.ContainsFunc(p.Waves, func(w Wave) bool { return w.Process == PowerCut })
}

// NewPlan draws a plan with so many waves, each with a fault of a process of one of
// these kinds.
func NewPlan(seed uint64, waves int, kinds []Fault) Plan {
	r := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // to be drawn again, not to be secret
	p := Plan{Seed: seed}
	kinds = slices.Clone(kinds)
	for i := range waves {
		w := Wave{Seed: r.Uint64(), Runs: 20 + r.IntN(60), Victim: r.IntN(2)}
		// Each kind once before any twice.
		if i%len(kinds) == 0 {
			r.Shuffle(len(kinds), func(i, j int) { kinds[i], kinds[j] = kinds[j], kinds[i] })
		}
		w.Process = kinds[i%len(kinds)]
		for _, f := range messageFaults {
			if r.IntN(2) == 0 {
				w.Messages = append(w.Messages, f)
			}
		}
		p.Waves = append(p.Waves, w)
	}
	return p
}

// Only keeps the waves with these numbers, as String gives them: "3,7" or "4-9".
func (p Plan) Only(waves string) (Plan, error) {
	if waves == "" {
		return p, nil
	}
	kept := Plan{Seed: p.Seed}
	for part := range strings.SplitSeq(waves, ",") {
		from, to, isRange := strings.Cut(part, "-")
		first, err := strconv.Atoi(from)
		last := first
		if err == nil && isRange {
			last, err = strconv.Atoi(to)
		}
		if err != nil || first < 0 || last >= len(p.Waves) || first > last {
			return Plan{}, fmt.Errorf("%q names no waves of a plan of %d: write them as 3,7 or 4-9", part, len(p.Waves))
		}
		kept.Waves = append(kept.Waves, p.Waves[first:last+1]...)
	}
	return kept, nil
}

// shrink looks for fewer waves that still fail, by leaving out halves, quarters and so
// on, and gives up after so many tries. It returns their numbers in p.
func (p Plan) shrink(tries int, fails func(Plan) bool) []int {
	kept := make([]int, len(p.Waves))
	for i := range kept {
		kept[i] = i
	}
	for size := (len(kept) + 1) / 2; size >= 1 && tries > 0; {
		reduced := false
		for from := 0; from < len(kept) && len(kept) > 1 && tries > 0; from += size {
			without := slices.Delete(slices.Clone(kept), from, min(from+size, len(kept)))
			if len(without) == 0 {
				continue
			}
			tries--
			if fails(p.pick(without)) {
				kept, reduced = without, true
				break
			}
		}
		if !reduced {
			if size == 1 {
				break
			}
			size = (size + 1) / 2
		} else {
			size = max(1, min(size, len(kept)/2))
		}
	}
	return kept
}

func (p Plan) pick(waves []int) Plan {
	out := Plan{Seed: p.Seed}
	for _, i := range waves {
		out.Waves = append(out.Waves, p.Waves[i])
	}
	return out
}
