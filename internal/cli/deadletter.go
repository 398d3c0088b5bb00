package cli

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/retryledger/retryledger/ingest/deadletter"
	"github.com/retryledger/retryledger/internal/datadir"
)

// lettersPlace is where a collector keeps its dead letters.
type lettersPlace struct {
	dataDir, journal string
}

func newDeadletter(env Environment) *cobra.Command {
	var place lettersPlace
	cmd := &cobra.Command{
		Use:   "deadletter",
		Short: "Show and replay what the collector could not keep",
		Long: `What a collector cannot keep as a span it notes in dead-letters.jsonl in its journal's
folder: which span it was and why, without any text that the store would not hold. These
commands read that folder, so they run on the collector's machine, as its user.`,
	}
	f := cmd.PersistentFlags()
	f.StringVar(&place.dataDir, "data-dir", "", "the collector's data folder (default $"+datadir.Variable+", else where the collector puts it)")
	f.StringVar(&place.journal, "journal", "", "the journal's folder, where journal::directory is set")
	cmd.AddCommand(newDeadletterList(env, &place), newDeadletterReplay(env, &place))
	return cmd
}

// folders are the journals' folders, one for each exporter.
func (p lettersPlace) folders(env Environment) ([]string, error) {
	if p.journal != "" {
		return []string{p.journal}, readable(p.journal)
	}
	dir := p.dataDir
	if dir == "" {
		dir = env.Getenv(datadir.Variable)
	}
	if dir == "" {
		var err error
		if dir, err = datadir.Default(); err != nil {
			return nil, fail(ExitUsage, "%w; name it with --data-dir", err)
		}
	}
	found, err := filepath.Glob(filepath.Join(dir, "journal*"))
	if err != nil {
		return nil, fail(ExitUsage, "--data-dir %s: %w", dir, err)
	}
	if len(found) == 0 {
		return nil, fail(ExitInput, "no journal in %s: name the collector's data folder with --data-dir, or the journal with --journal", dir)
	}
	for _, folder := range found {
		if err := readable(folder); err != nil {
			return nil, err
		}
	}
	return found, nil
}

func readable(folder string) error {
	if _, err := os.ReadDir(folder); err != nil {
		if errors.Is(err, fs.ErrPermission) {
			return fail(ExitInput, "%w: run this as the collector's user", err)
		}
		return fail(ExitInput, "%w", err)
	}
	return nil
}

// letter is a dead letter as it is shown.
type letter struct {
	Time       time.Time        `json:"time"`
	Kind       deadletter.Kind  `json:"kind"`
	Cause      deadletter.Cause `json:"cause"`
	Reason     string           `json:"reason"`
	TraceID    string           `json:"trace_id,omitempty"`
	SpanID     string           `json:"span_id,omitempty"`
	Service    string           `json:"service,omitempty"`
	Items      int              `json:"items"` // spans, rows or stretches of the journal
	Replayable bool             `json:"replayable"`
	Segment    string           `json:"segment,omitempty"`
	Offset     int64            `json:"offset,omitempty"`
	Length     int64            `json:"length,omitempty"` // bytes
}

// causeCount is what one cause cost.
type causeCount struct {
	Cause      deadletter.Cause `json:"cause"`
	Items      int              `json:"items"`
	Replayable int              `json:"replayable"`
	Last       time.Time        `json:"last"`
}

// letters is the answer of deadletter list.
type letters struct {
	Items      int          `json:"items"`
	Replayable int          `json:"replayable"`
	Causes     []causeCount `json:"causes"`  // the most frequent first
	Letters    []letter     `json:"letters"` // the newest first
}

func (l *letters) add(found deadletter.Letter) {
	if found.Cause == "" {
		found.Cause = deadletter.CauseOther
	}
	one := letter{Time: found.Time, Kind: found.Kind, Cause: found.Cause, Reason: found.Reason, TraceID: found.TraceID, SpanID: found.SpanID,
		Service: found.Service, Items: found.Items(), Replayable: found.Row != nil, Segment: found.Segment, Offset: found.Offset, Length: found.Length}
	l.Letters = append(l.Letters, one)
	i := slices.IndexFunc(l.Causes, func(c causeCount) bool { return c.Cause == found.Cause })
	if i < 0 {
		i = len(l.Causes)
		l.Causes = append(l.Causes, causeCount{Cause: found.Cause})
	}
	c := &l.Causes[i]
	l.Items, c.Items = l.Items+one.Items, c.Items+one.Items
	if one.Replayable {
		l.Replayable, c.Replayable = l.Replayable+one.Items, c.Replayable+one.Items
	}
	if c.Last.Before(found.Time) {
		c.Last = found.Time
	}
}

type deadletterListFlags struct {
	format string
	limit  int
}

func newDeadletterList(env Environment, place *lettersPlace) *cobra.Command {
	var flags deadletterListFlags
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List what could not be kept, and why",
		Long: `Reads the dead letters of a collector, which may be running: how many there are by cause,
and the newest of them.

Exit codes:
  0  answered
  2  a flag is wrong
  4  the folder cannot be read`,
		Example: `  retryledger deadletter list
  retryledger deadletter list --format json | jq '.causes'`,
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error { return flags.run(env, *place) },
	}
	f := cmd.Flags()
	f.StringVar(&flags.format, "format", "table", "table or json")
	f.IntVar(&flags.limit, "limit", 20, "letters to show, 0 for all; all are counted")
	return cmd
}

func (f deadletterListFlags) run(env Environment, place lettersPlace) error {
	if f.format != "table" && f.format != "json" {
		return fail(ExitUsage, "--format %s: choose table or json", f.format)
	}
	if f.limit < 0 {
		return fail(ExitUsage, "--limit %d: give a number of letters, 0 for all", f.limit)
	}
	folders, err := place.folders(env)
	if err != nil {
		return err
	}
	found := letters{Causes: []causeCount{}, Letters: []letter{}}
	for _, folder := range folders {
		if err := deadletter.Read(folder, func(l deadletter.Letter) error { found.add(l); return nil }); err != nil {
			return fail(ExitInput, "%w", err)
		}
	}
	slices.SortStableFunc(found.Letters, func(a, b letter) int { return b.Time.Compare(a.Time) })
	slices.SortStableFunc(found.Causes, func(a, b causeCount) int { return b.Items - a.Items })
	all := len(found.Letters)
	if f.limit > 0 && all > f.limit {
		found.Letters = found.Letters[:f.limit]
	}
	if f.format == "json" {
		return writeJSON(env.Stdout, found)
	}
	p := newPrinter(env)
	p.deadLetters(found, all)
	return p.flush(env)
}

// deadLetters prints what could not be kept.
func (p printer) deadLetters(found letters, all int) {
	if found.Items == 0 {
		p.line("No dead letters: everything that came was kept.")
		return
	}
	p.line(fmt.Sprintf("%s could not be kept; %d can be replayed.", plural(found.Items, "item"), found.Replayable))
	p.blank()
	causes := func(cell func(*causeCount) string) []string {
		cells := make([]string, len(found.Causes))
		for i := range found.Causes {
			cells[i] = cell(&found.Causes[i])
		}
		return cells
	}
	p.table([]column{
		{title: "cause", left: true, cells: causes(func(c *causeCount) string { return clean(string(c.Cause)) })},
		{title: "items", cells: causes(func(c *causeCount) string { return count(c.Items) })},
		{title: "replayable", cells: causes(func(c *causeCount) string { return count(c.Replayable) })},
		{title: "last", left: true, cells: causes(func(c *causeCount) string { return instant(c.Last) })},
	})
	p.blank()
	each := func(cell func(*letter) string) []string {
		cells := make([]string, len(found.Letters))
		for i := range found.Letters {
			cells[i] = cell(&found.Letters[i])
		}
		return cells
	}
	p.table([]column{
		{title: "when", left: true, cells: each(func(l *letter) string { return instant(l.Time) })},
		{title: "why", left: true, cells: each(func(l *letter) string { return clean(l.Reason) })},
		{title: "items", name: "items", drop: 40, cells: each(func(l *letter) string { return count(l.Items) })},
		{title: "service", name: "service", left: true, drop: 30, cells: each(func(l *letter) string { return clean(l.Service) })},
		{title: "trace", name: "trace", left: true, drop: 20, cells: each(func(l *letter) string { return clean(l.TraceID) })},
		{title: "span", name: "span", left: true, drop: 10, cells: each(func(l *letter) string {
			if l.Segment != "" {
				return clean(l.Segment)
			}
			return clean(l.SpanID)
		})},
	})
	if len(found.Letters) < all {
		p.blank()
		p.line(fmt.Sprintf("The newest %d of %d letters are shown; --limit 0 shows all.", len(found.Letters), all))
	}
	if found.Replayable > 0 {
		p.blank()
		p.line("When the cause is gone:")
		p.line(p.command("retryledger deadletter replay"))
	}
}

func newDeadletterReplay(env Environment, place *lettersPlace) *cobra.Command {
	var wait time.Duration
	cmd := &cobra.Command{
		Use:   "replay",
		Short: "Let the collector take again what it could not keep",
		Long: `Asks the collector whose folder this is to put the rows of its dead letters into its
journal, from where they go to the store like any other, and waits for its answer. Do it
when the cause is gone, such as after an upgrade. It may be repeated: a span counts once,
however often it is replayed. What the store refuses again becomes a dead letter again.

The request lies in the folder. If no collector runs there, the next one to start takes it.

Exit codes:
  0  replayed
  2  a flag is wrong
  3  no collector has taken the request yet, or the replay failed
  4  the folder cannot be read`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			folders, err := place.folders(env)
			if err != nil {
				return err
			}
			for _, folder := range folders {
				if err := replayLetters(cmd.Context(), env, folder, wait); err != nil {
					return err
				}
			}
			return nil
		},
	}
	cmd.Flags().DurationVar(&wait, "wait", 30*time.Second, "how long to wait for the collector's answer")
	return cmd
}

func replayLetters(ctx context.Context, env Environment, folder string, wait time.Duration) error {
	var id [8]byte
	if _, err := io.ReadFull(env.Random, id[:]); err != nil {
		return fmt.Errorf("draw a request's id: %w", err)
	}
	within, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	answer, err := deadletter.RequestReplay(within, folder, hex.EncodeToString(id[:]))
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("wait for the replay: %w", ctx.Err())
	case errors.Is(err, deadletter.ErrNotTaken):
		return fail(ExitUnreachable, "no collector has taken the request within %s: none runs with %s, or it is busy. The request stays, and is taken when one does", wait, folder)
	case err != nil:
		return fail(ExitInput, "%w", err)
	case answer.Error != "":
		return fail(ExitUnreachable, "the collector could not replay all: %s; what it took counts once if you try again", clean(answer.Error))
	}
	p := newPrinter(env)
	p.line(fmt.Sprintf("%s replayed from %s: now in the journal, from where they go to the store.", plural(answer.Replayed, "row"), folder))
	if answer.Kept > 0 {
		p.line(fmt.Sprintf("Left there, for nothing of them can be replayed: %s.", plural(answer.Kept, "line")))
	}
	return p.flush(env)
}
