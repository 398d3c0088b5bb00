//go:build linux

package apptest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/retryledger/retryledger/internal/procfs"
)

// Look is what a process, or the store, holds at one moment of a soak.
type Look struct {
	At    time.Duration // since the beginning
	Spans int64         // acknowledged by then
	// Memory is what is resident, in bytes, by process: "engine", "collector 0", "collector 1".
	Memory map[string]int64
	// Files are open file descriptors, by process.
	Files map[string]int
	// Parts are the active parts of the table that has most of them.
	Parts     int
	MostParts string // that table
	Disk      int64  // bytes of all active parts
}

func (l *Look) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v: %d spans", l.At.Round(time.Second), l.Spans)
	for _, name := range []string{"collector 0", "collector 1", "engine"} {
		fmt.Fprintf(&b, "; %s %s, %d files", name, humanize.IBytes(uint64(l.Memory[name])), l.Files[name])
	}
	fmt.Fprintf(&b, "; %d parts of %s at the most; %s on disk", l.Parts, l.MostParts, humanize.IBytes(uint64(l.Disk)))
	return b.String()
}

// soak sends a trickle of one span a second to one collector, and runs each second and a
// crowd of them each minute to the other, for as long as lasts. Three requests of a
// hundred are sent again, to either. Then the ledger must be the truth. It looks at the processes each every.
func soak(ctx context.Context, folder string, ports []string, seed uint64, lasts, every time.Duration, logf func(string, ...any)) ([]Look, error) {
	c, err := newCluster(ctx, folder, ports, newDisk)
	if err != nil {
		return nil, err
	}
	defer c.close()
	r := &runner{c: c, truth: newTruth(), logf: logf, took: make(map[spanKey]string), report: Report{Seed: seed, Faults: make(map[Fault]int)}}
	source := rand.New(rand.NewPCG(seed, 4)) //nolint:gosec // to be drawn again, not to be secret
	g := &traffic{r: source, truth: r.truth, seed: seed}
	began := time.Now()
	looks := []Look{}
	look := func() error {
		l, err := c.look(ctx, time.Since(began))
		if err != nil {
			return err
		}
		l.Spans = r.sent.Load()
		looks = append(looks, *l)
		logf("%v", l)
		return nil
	}
	var trickle []sentSpan
	const perSecond, crowd = 10, 300
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for second, next := 0, every; time.Since(began) < lasts; second++ {
		if len(trickle) == 0 {
			trickle = g.run(time.Now())
		}
		jobs := []job{{spans: trickle[:1], to: 0, way: second % 4}}
		trickle = trickle[1:]
		n := perSecond
		if second%60 == 30 {
			n = crowd
		}
		for range n {
			jobs = append(jobs, job{spans: g.run(time.Now()), to: 1, way: source.IntN(4)})
		}
		for _, j := range slices.Clone(jobs) {
			if source.IntN(100) < 3 {
				j.to = source.IntN(2)
				jobs = append(jobs, j)
				r.count(Duplicate, 1)
			}
		}
		if err := r.send(ctx, g, jobs, 0); err != nil {
			return looks, err
		}
		if time.Since(began) >= next {
			next += every
			if err := look(); err != nil {
				return looks, err
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return looks, fmt.Errorf("soak: %w", ctx.Err())
		}
	}
	if len(trickle) > 0 {
		if err := r.send(ctx, g, []job{{spans: trickle, to: 0}}, 0); err != nil {
			return looks, err
		}
	}
	if err := r.settle(ctx); err != nil {
		r.explain(ctx)
		return looks, err
	}
	logf("%d requests were sent again, and %d because they were not acknowledged", r.report.Faults[Duplicate], r.again.Load())
	return looks, errors.Join(look(), c.stop())
}

// look measures the processes and the store.
func (c *cluster) look(ctx context.Context, at time.Duration) (*Look, error) {
	l := &Look{At: at, Memory: map[string]int64{}, Files: map[string]int{}}
	for _, p := range []*process{c.engine, c.collectors[0].process, c.collectors[1].process} {
		pid := p.cmd.Process.Pid
		for _, one := range append([]int{pid}, procfs.Children(pid)...) {
			memory, files, err := measure(one)
			if err != nil {
				return nil, fmt.Errorf("look at the %s: %w", p.name, err)
			}
			l.Memory[p.name] += memory
			l.Files[p.name] += files
		}
	}
	var parts, disk uint64
	err := c.store.QueryRow(ctx, `SELECT max(parts), argMax(table, parts), sum(bytes)
		FROM (SELECT table, count() AS parts, sum(bytes_on_disk) AS bytes FROM system.parts WHERE active AND database = 'retryledger' GROUP BY table)`).
		Scan(&parts, &l.MostParts, &disk)
	if err != nil {
		return nil, fmt.Errorf("count the parts of the store: %w", err)
	}
	l.Parts, l.Disk = int(parts), int64(disk)
	return l, nil
}

// measure is what a process holds of memory, in bytes, and how many files it has open.
func measure(pid int) (memory int64, files int, err error) {
	if memory, err = procfs.Memory(pid, procfs.Resident); err != nil {
		return 0, 0, err //nolint:wrapcheck // it says whose memory
	}
	open, err := os.ReadDir("/proc/" + strconv.Itoa(pid) + "/fd")
	if err != nil {
		return 0, 0, fmt.Errorf("read the open files of process %d: %w", pid, err)
	}
	return memory, len(open), nil
}
