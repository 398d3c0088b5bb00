package journal_test

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/retryledger/retryledger/ingest/journal"
	"github.com/retryledger/retryledger/schema"
)

// childDir names the variable that makes this test binary the program that
// appends until it is killed.
const childDir = "JOURNAL_TEST_CHILD_DIR"

const childWriters = 4

func options(dir string) journal.Options {
	return journal.Options{Dir: dir, MaxBytes: 1 << 30, SegmentBytes: 64 << 10, SetAsideBytes: 1 << 20}
}

// span whose number the test finds again.
func numbered(writer, n int) schema.Span {
	s := plainSpan(n)
	binary.BigEndian.PutUint64(s.TraceID[:], uint64(writer))
	binary.BigEndian.PutUint64(s.TraceID[8:], uint64(n))
	return s
}

func numberOf(s schema.Span) (writer, n int) {
	return int(binary.BigEndian.Uint64(s.TraceID[:])), int(binary.BigEndian.Uint64(s.TraceID[8:]))
}

// appendUntilKilled appends from several goroutines and says on its standard
// output what was acknowledged: "writer number". It reads back as well and, if
// told to, confirms at times, and says "C writer number" first.
func appendUntilKilled(dir string) {
	j, err := journal.Open(options(dir))
	if err != nil {
		fmt.Println("E", err)
		os.Exit(1)
	}
	var out sync.Mutex
	from, _ := strconv.Atoi(os.Getenv(childDir + "_FROM"))
	for w := range childWriters {
		go func() {
			for n := from; ; n += 10 {
				spans := make([]schema.Span, 10)
				for i := range spans {
					spans[i] = numbered(w, n+i)
				}
				if err := j.Append(context.Background(), spans); err != nil {
					fmt.Println("E", err)
					os.Exit(1)
				}
				out.Lock()
				fmt.Println(w, n+9)
				out.Unlock()
			}
		}()
	}
	for i := 0; ; i++ {
		rec, err := j.Next(context.Background())
		if err != nil {
			fmt.Println("E", err)
			os.Exit(1)
		}
		if os.Getenv(childDir+"_CONFIRM") != "" && i%20 == 0 {
			out.Lock()
			for _, s := range rec.Spans {
				w, n := numberOf(s)
				fmt.Println("C", w, n)
			}
			out.Unlock()
			j.Confirm(rec.End)
		}
	}
}

// A process that is killed while it appends loses nothing that it acknowledged.
func TestKilledWhileAppending(t *testing.T) {
	rounds := 25
	if testing.Short() {
		rounds = 5
	}
	dir := t.TempDir()
	acknowledged := make([]int, childWriters) // by writer: the highest number, of all rounds
	confirmed := map[[2]int]bool{}            // printed before Confirm: these may be missing
	rng := rand.New(rand.NewPCG(1, 2))
	from := 0
	for round := range rounds {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), childDir+"="+dir, childDir+"_FROM="+strconv.Itoa(from))
		confirms := round%3 == 2
		if confirms {
			cmd.Env = append(cmd.Env, childDir+"_CONFIRM=1")
		}
		stdout, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		kill := time.AfterFunc(time.Duration(20+rng.IntN(120))*time.Millisecond, func() { _ = cmd.Process.Kill() })
		lines := bufio.NewScanner(stdout)
		roundAck := make([]int, childWriters)
		highest := from
		for i := range roundAck {
			roundAck[i] = from - 1
		}
		for lines.Scan() {
			f := strings.Fields(lines.Text())
			require.NotEqual(t, "E", f[0], lines.Text())
			if f[0] == "C" && len(f) == 3 {
				w, _ := strconv.Atoi(f[1])
				n, _ := strconv.Atoi(f[2])
				confirmed[[2]int{w, n}] = true
				continue
			}
			if len(f) != 2 {
				continue
			}
			w, _ := strconv.Atoi(f[0])
			n, _ := strconv.Atoi(f[1])
			roundAck[w] = max(roundAck[w], n)
			highest = max(highest, n)
		}
		_ = cmd.Wait() // killed
		kill.Stop()

		// Confirm covers all records before it, so read what is left and compare.
		seen := readAll(t, dir)
		for w := range childWriters {
			first := -1
			for n := from; n <= roundAck[w]; n++ {
				if seen[[2]int{w, n}] {
					first = n
					break
				}
			}
			for n := from; n <= roundAck[w]; n++ {
				if seen[[2]int{w, n}] {
					continue
				}
				// Missing is fine only as a prefix that a confirmation covered.
				require.True(t, confirms && coveredByConfirm(confirmed, w, n) && (first < 0 || n < first),
					"round %d: writer %d span %d was acknowledged and is gone", round, w, n)
			}
			acknowledged[w] = max(acknowledged[w], roundAck[w])
		}
		from = (highest/10 + 10) * 10 // behind what was written and not acknowledged
	}
	require.Positive(t, acknowledged[0])
}

// coveredByConfirm tells whether a confirmation at or behind n was announced.
// Records of one writer are in order, and of others at most a group apart.
func coveredByConfirm(confirmed map[[2]int]bool, w, n int) bool {
	for key := range confirmed {
		if key[0] == w && key[1] >= n {
			return true
		}
		if key[0] != w {
			return true
		}
	}
	return false
}

func readAll(t *testing.T, dir string) map[[2]int]bool {
	t.Helper()
	j, err := journal.Open(options(dir))
	require.NoError(t, err)
	defer func() { require.NoError(t, j.Close()) }()
	seen := map[[2]int]bool{}
	last := map[int]int{}
	for {
		rec, err := j.TryNext()
		if errors.Is(err, journal.ErrEmpty) {
			return seen
		}
		require.NoError(t, err)
		for _, s := range rec.Spans {
			w, n := numberOf(s)
			require.Greater(t, n, last[w]-1, "in order")
			last[w] = n
			seen[[2]int{w, n}] = true
		}
	}
}

func TestTwoProcessesCannotShareAJournal(t *testing.T) {
	dir := t.TempDir()
	j, err := journal.Open(options(dir))
	require.NoError(t, err)
	_, err = journal.Open(options(dir))
	require.ErrorIs(t, err, journal.ErrInUse)
	require.ErrorContains(t, err, dir)
	require.NoError(t, j.Close())
	j, err = journal.Open(options(dir))
	require.NoError(t, err)
	require.NoError(t, j.Close())
}

func segmentFiles(t require.TestingT, dir string) []string {
	names, err := filepath.Glob(filepath.Join(dir, "*.journal"))
	require.NoError(t, err)
	return names
}
