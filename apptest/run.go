//go:build linux

package apptest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/retryledger/retryledger/internal/replay"
)

// Report is what one run of a plan did and found.
type Report struct {
	Seed       uint64
	Faults     map[Fault]int
	Runs       int
	SpansSent  int64 // repeats included
	Spans      int64 // distinct ones, all acknowledged
	Again      int64 // answers that were not an acknowledgement: the sender sent again
	Lost       int64 // spans that are not in the store
	Double     int64 // attempts in the ledger beyond those that were made
	CaughtUpIn time.Duration
	Took       time.Duration
}

func (r *Report) String() string {
	var b strings.Builder
	total := 0
	for _, f := range slices.Sorted(maps.Keys(r.Faults)) {
		fmt.Fprintf(&b, "  %-15s %d\n", f, r.Faults[f])
		total += r.Faults[f]
	}
	return fmt.Sprintf("seed %d: %d faults in %v, %d runs, %d spans sent of which %d are distinct, %d requests sent again; lost %d, double %d; caught up %v after the last fault\n%s",
		r.Seed, total, r.Took.Round(time.Second), r.Runs, r.SpansSent, r.Spans, r.Again, r.Lost, r.Double, r.CaughtUpIn.Round(time.Millisecond), b.String())
}

// errRefused is returned when a collector told a sender not to try again.
var errRefused = errors.New("a collector refused spans for good")

// errWrong is returned when the ledger is not the truth.
var errWrong = errors.New("the ledger is not what happened")

// runner is one run of a plan.
type runner struct {
	c      *cluster
	power  *platter // where the cluster's disk can be cut off
	plan   Plan
	truth  *Truth
	logf   func(string, ...any)
	mu     sync.Mutex
	report Report
	took   map[spanKey]string // every span that was acknowledged: where, and during what
	sent   atomic.Int64
	again  atomic.Int64
}

func (r *runner) count(f Fault, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.report.Faults[f] += n
}

// run carries out a plan in an empty folder and compares the ledger with the truth.
func run(ctx context.Context, folder string, ports []string, plan Plan, logf func(string, ...any)) (_ *Report, err error) {
	began := time.Now()
	var power *platter
	journals := newDisk
	if plan.cutsPower() {
		if power, err = newPlatter(ctx, folder); err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, power.unmount()) }()
		folder, journals = power.folder, partOfDisk
	}
	c, err := newCluster(ctx, folder, ports, journals)
	if err != nil {
		return nil, err
	}
	defer c.close()
	r := &runner{c: c, power: power, plan: plan, truth: newTruth(), logf: logf, took: make(map[spanKey]string), report: Report{Seed: plan.Seed, Faults: make(map[Fault]int)}}
	for i, w := range plan.Waves {
		if err := r.wave(ctx, i, w); err != nil {
			return &r.report, fmt.Errorf("wave %d (%s, collector %d): %w", i, w.Process, w.Victim, err)
		}
	}
	waits := time.Now()
	err = r.settle(ctx)
	r.report.CaughtUpIn = time.Since(waits)
	if err == nil { // merging what is left changes nothing
		if err = c.merge(ctx); err == nil {
			err = r.settle(ctx)
		}
	}
	if err == nil {
		err = c.stop()
	} else {
		r.explain(ctx)
	}
	r.report.Runs, r.report.Spans, r.report.SpansSent, r.report.Again, r.report.Took = r.truth.Runs, r.truth.Spans, r.sent.Load(), r.again.Load(), time.Since(began)
	return &r.report, err
}

// job is one export request, and what happens to it.
type job struct {
	spans []sentSpan
	to    int
	way   int
	cut   bool
	wave  string
}

// spanKey is the identity of a span.
type spanKey struct {
	trace pcommon.TraceID
	span  pcommon.SpanID
}

// acknowledged notes who has taken the spans of a job.
func (r *runner) acknowledged(j job, n *node) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range j.spans {
		r.took[spanKey{s.span.TraceID(), s.span.SpanID()}] += fmt.Sprintf(" %s at %s, %s;", n.name, time.Now().UTC().Format("15:04:05.000"), j.wave)
	}
}

// explain says which acknowledged spans the store does not hold, and what the processes wrote.
func (r *runner) explain(ctx context.Context) {
	held, err := r.c.spans(ctx)
	if err != nil {
		r.logf("ask the store which spans it holds: %v", err)
	} else {
		r.tellMissing(held)
	}
	for _, p := range []*process{r.c.engine, r.c.collectors[0].process, r.c.collectors[1].process} {
		r.logf("the %s wrote:\n%s", p.name, p.before+p.out.String())
	}
}

// mostTold bounds how many lost spans are listed.
const mostTold = 50

func (r *runner) tellMissing(held []string) {
	missing := 0
	for key, taken := range r.took {
		if _, ok := slices.BinarySearch(held, key.trace.String()+key.span.String()); ok {
			continue
		}
		missing++
		if missing <= mostTold {
			r.logf("span %s of trace %s is not in the store; it was taken by%s", key.span, key.trace, taken)
		}
	}
	r.logf("%d acknowledged spans are not in the store", missing)
}

// wave sends the traffic of one wave while its faults happen, and ends when all of it
// is acknowledged and all processes run.
func (r *runner) wave(ctx context.Context, number int, w Wave) error {
	source := rand.New(rand.NewPCG(w.Seed, 2)) //nolint:gosec // to be drawn again, not to be secret
	g := &traffic{r: source, truth: r.truth, seed: w.Seed}
	var spans []sentSpan
	for range w.Runs {
		spans = append(spans, g.run(time.Now())...)
	}
	jobs := r.jobs(source, w, spans)
	for i := range jobs {
		jobs[i].wave = fmt.Sprintf("wave %d, %s of collector %d", number, w.Process, w.Victim)
	}
	done := make(chan error, 1)
	faulty := make(chan struct{})
	pause := time.Duration(source.IntN(500)) * time.Millisecond
	lasts := time.Duration(300+source.IntN(1500)) * time.Millisecond
	go func() {
		defer close(faulty)
		time.Sleep(pause)
		done <- r.harm(ctx, w, lasts)
	}()
	// Some of the traffic is on its way before the fault, most during it.
	err := r.send(ctx, g, jobs, (pause+lasts+500*time.Millisecond)/time.Duration(len(jobs)))
	<-faulty
	return errors.Join(err, <-done)
}

// jobs cuts spans into requests, and adds those that the faults of messages bring.
func (r *runner) jobs(source *rand.Rand, w Wave, spans []sentSpan) []job {
	has := func(f Fault) bool { return slices.Contains(w.Messages, f) }
	shuffle := func(list []sentSpan) {
		source.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	}
	if has(Reorder) {
		shuffle(spans)
		r.count(Reorder, 1)
	}
	cutUp := func(list []sentSpan) (out []job) {
		for len(list) > 0 {
			n := min(len(list), 1+source.IntN(60))
			out = append(out, job{spans: list[:n:n], to: source.IntN(2), way: source.IntN(4)})
			list = list[n:]
		}
		return out
	}
	jobs := cutUp(spans)
	var late []job
	if has(Delay) {
		jobs = slices.DeleteFunc(jobs, func(j job) bool {
			if source.IntN(5) > 0 {
				return false
			}
			late = append(late, j)
			return true
		})
		r.count(Delay, len(late))
	}
	if has(Duplicate) {
		for _, j := range slices.Clone(jobs) {
			if source.IntN(5) == 0 {
				again := j
				again.to, again.way = source.IntN(2), source.IntN(4)
				late = append(late, again)
				r.count(Duplicate, 1)
			}
		}
	}
	if has(Recut) {
		some := slices.Clone(spans)
		shuffle(some)
		parts := cutUp(some[:len(some)/3])
		late = append(late, parts...)
		r.count(Recut, len(parts))
	}
	jobs = append(jobs, late...)
	if has(Cut) {
		for i := range jobs {
			jobs[i].cut = source.IntN(6) == 0
		}
	}
	return jobs
}

// senders is how many requests are on their way at once.
const senders = 8

// send delivers jobs, one after each pace, each until it is acknowledged.
func (r *runner) send(ctx context.Context, g *traffic, jobs []job, pace time.Duration) error {
	queue := make(chan job)
	var wg sync.WaitGroup
	errs := make(chan error, senders)
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	for range senders {
		wg.Go(func() {
			for j := range queue {
				if err := r.deliver(ctx, g, j); err != nil {
					errs <- err
					stop()
					return
				}
			}
		})
	}
feed:
	for _, j := range jobs {
		select {
		case queue <- j:
			time.Sleep(pace)
		case <-ctx.Done():
			break feed
		}
	}
	close(queue)
	wg.Wait()
	select {
	case err := <-errs:
		return err
	default:
		return nil
	}
}

// deliverWithin bounds how long a sender tries: senders give up in the end, but a
// collector that is killed again and again is up more often than that.
const deliverWithin = 4 * time.Minute

func (r *runner) deliver(ctx context.Context, g *traffic, j job) error {
	n := r.c.collectors[j.to]
	by := n.grpc
	if j.way > 0 {
		by = n.http
	}
	open := func() (replay.Sender, error) {
		switch j.way {
		case 0:
			return replay.NewGRPC(by.address(), false, replay.Access{})
		case 1:
			return replay.NewHTTP(by.address(), replay.Protobuf, true, replay.Access{})
		case 2:
			return replay.NewHTTP(by.address(), replay.JSON, false, replay.Access{})
		}
		return replay.NewHTTP(by.address(), replay.Protobuf, false, replay.Access{})
	}
	request := g.request(j.spans)
	deadline := time.Now().Add(deliverWithin)
	for wait := 20 * time.Millisecond; ; wait = min(2*wait, 500*time.Millisecond) {
		s, err := open()
		if err != nil {
			return fmt.Errorf("open a sender: %w", err)
		}
		if j.cut {
			j.cut = false
			by.cutNext.Store(true)
			r.count(Cut, 1)
		}
		attempt, cancel := context.WithTimeout(ctx, 10*time.Second)
		r.sent.Add(int64(len(j.spans)))
		err = s.Send(attempt, request)
		cancel()
		_ = s.Close()
		switch {
		case err == nil:
			r.acknowledged(j, n)
			return nil
		case errors.Is(err, replay.ErrRefused):
			return fmt.Errorf("%w: %w", errRefused, err)
		case ctx.Err() != nil:
			return fmt.Errorf("send to %s: %w", n.name, ctx.Err())
		case time.Now().After(deadline):
			return fmt.Errorf("send to %s for %v: %w", n.name, deliverWithin, err)
		}
		r.again.Add(1)
		time.Sleep(wait)
	}
}

// harm does the process fault of a wave, and mends it.
func (r *runner) harm(ctx context.Context, w Wave, lasts time.Duration) error {
	victim, other, engine := r.c.collectors[w.Victim], r.c.collectors[1-w.Victim], r.c.engine
	restart := func(list ...*process) error {
		var errs []error
		for _, p := range list {
			errs = append(errs, p.start(ctx))
		}
		return errors.Join(errs...)
	}
	pause := func(p *process) {
		p.signal(syscall.SIGSTOP)
		time.Sleep(lasts)
		p.signal(syscall.SIGCONT)
	}
	var err error
	switch w.Process {
	case KillCollector:
		victim.kill()
		err = restart(victim.process)
	case KillBoth:
		victim.kill()
		other.kill()
		err = restart(victim.process, other.process)
	case KillEngine:
		engine.kill()
		time.Sleep(lasts)
		err = restart(engine)
	case KillAll:
		victim.kill()
		engine.kill()
		other.kill()
		err = restart(engine, victim.process, other.process)
	case KillRecovery:
		victim.kill()
		if err = victim.launch(); err == nil {
			time.Sleep(lasts / 2)
			victim.kill()
			err = restart(victim.process)
		}
	case StopEngine:
		pause(engine)
	case StopCollector:
		pause(victim.process)
	case StopMerges:
		if err = r.c.merges(ctx, "STOP"); err == nil {
			time.Sleep(lasts)
			err = r.c.merges(ctx, "START")
		}
	case FillDisk:
		if !victim.journal.mounted {
			r.logf("no disk is filled: this user may not mount a small one")
			return nil
		}
		if err = victim.journal.fill(); err == nil {
			time.Sleep(lasts)
			err = victim.journal.empty()
		}
	case PowerCut:
		// Nobody may acknowledge anything when the power is gone. The kernel outlives this
		// cut, and tells a process that is in the midst of an fsync sometimes that all is well.
		for _, p := range []*process{victim.process, other.process, engine} {
			p.signal(syscall.SIGSTOP)
		}
		time.Sleep(20 * time.Millisecond)
		if err = r.power.cut(); err == nil {
			victim.kill()
			other.kill()
			engine.kill()
			if err = r.power.restore(ctx); err == nil {
				err = restart(engine, victim.process, other.process)
			}
		}
	case "", Duplicate, Recut, Delay, Reorder, Cut:
		return nil
	}
	if err == nil {
		r.count(w.Process, 1)
	}
	return err
}
