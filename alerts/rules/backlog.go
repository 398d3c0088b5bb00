package rules

import "time"

// backlogWindows is for how many windows of a rule on ingest_stalled a backlog that was
// found at the start may go down without an alert.
const backlogWindows = 10

// backlog is how far the ledger was behind since evaluations began, or began again after
// a gap. What has piled up by then is no stall while it goes down. Instants are
// nanoseconds since the epoch.
type backlog struct {
	began    int64 // 0: not yet
	lowest   time.Duration
	lowestAt int64
}

// note takes what one evaluation found.
func (b *backlog) note(lag time.Duration, c circumstance) {
	if b.began == 0 || c.gap {
		*b = backlog{began: c.at, lowest: lag, lowestAt: c.at}
	}
	if lag < b.lowest {
		b.lowest, b.lowestAt = lag, c.at
	}
}

// goesDown tells whether what is left of the backlog may yet be worked off: evaluations
// began less than a window ago, for the ledger comes nearer in strides; or it was never
// within window since, has come nearer within the last window, and did not take longer
// than backlogWindows of them.
func (b *backlog) goesDown(window time.Duration, at int64) bool {
	since := at - b.began
	return since < int64(window) || b.lowest > window && at-b.lowestAt < int64(window) && since < backlogWindows*int64(window)
}
