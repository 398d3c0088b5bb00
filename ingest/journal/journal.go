// Package journal keeps the rows that were acknowledged and are not yet in the
// store: a segmented log on the local disk.
//
// Append returns only after its rows are on the disk (fsync); callers that
// arrive while one fsync runs share the next one. One consumer reads the rows
// in the order of their acknowledgement (Next) and says how far they are safe
// in the store (Confirm); a segment is removed only when everything in it is.
// The position that was confirmed is kept beside the segments without an
// fsync: losing it makes rows come again, which the store's identity absorbs,
// and never makes them go missing.
//
// What a crash leaves: a kill or a power cut may leave a torn last record,
// which was not acknowledged; it is passed over. A later start never writes to
// an old segment, it begins a new one. Bytes damaged in the middle are passed
// over up to the next record whose checksums hold, reported by Damage, and the
// segment that holds them is moved to the folder "set-aside" instead of being
// removed.
//
// Why not a library: tidwall/wal has no checksums, refuses to open a log with a
// torn tail, and copies the rest of a segment to drop its front, which a full
// disk forbids. Prometheus' tsdb/wlog stops at the first damaged record and
// repairs by deleting what lies behind it, logs and forgets a failed fsync of a
// finished segment, and mixes a write that failed on a full disk with the next
// one. Neither leaves more than a file name to build upon.
package journal

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/gofrs/flock"
)

var (
	// ErrFull is returned when the byte cap is reached, or the disk has less
	// free space than it must keep. Nothing was kept; try again later.
	ErrFull = errors.New("the journal is full")
	// ErrDiskLow is the ErrFull of a disk that has less free space than it must keep.
	ErrDiskLow = fmt.Errorf("%w: the disk is low", ErrFull)
	// ErrClosed is returned after Close.
	ErrClosed = errors.New("the journal is closed")
	// ErrInUse is returned when another process holds the directory.
	ErrInUse = errors.New("the journal is in use")
	// ErrTooLarge is returned for rows that would not fit an empty journal.
	ErrTooLarge = errors.New("more rows at once than the journal can hold")
)

// Options say where a journal lies and how large it may grow.
type Options struct {
	Dir          string        // created if absent
	MaxBytes     int64         // of all segments together
	SegmentBytes int64         // a segment is finished when it has this size
	MinFreeBytes uint64        // that the disk must keep free; 0: no floor
	GroupWindow  time.Duration // how long an fsync waits for more callers; 0: only for the fsync before it
	// SetAsideBytes bounds the segments kept because of damage; the oldest go first.
	SetAsideBytes int64

	// Damage, if not nil, is told of each stretch of bytes that was passed
	// over, from the goroutine that calls Next.
	Damage func(Damage)
	// GaveUp, if not nil, is told of each segment that is removed from those set aside,
	// because of their bound. It must not call the journal.
	GaveUp func(segment string, bytes int64)

	Now  func() time.Time // nil: time.Now
	Rand io.Reader        // nil: crypto/rand
	// Free tells the free bytes of the disk that holds a path; nil: ask the system.
	Free func(path string) (uint64, error)
}

// Damage is a stretch of a segment that holds no readable record.
type Damage struct {
	Segment string // file name
	Offset  int64
	Length  int64
	Reason  error
}

// Position is a place between two records. Its zero value is before the first.
type Position struct {
	segment uint64
	offset  int64
}

func (p Position) before(q Position) bool {
	return p.segment < q.segment || p.segment == q.segment && p.offset < q.offset
}

// segment is one file of the log.
type segment struct {
	number  uint64
	salt    uint64 // makes the name of a file unlike that of any other journal's
	size    int64  // bytes that may be read: of the last segment, those an fsync covers
	damaged bool
}

func (s *segment) name() string { return fmt.Sprintf("%016x-%016x.journal", s.number, s.salt) }

// Journal is an open journal. Append may be called from any goroutine; Next
// and Confirm from one.
type Journal struct {
	opts Options
	lock *flock.Flock

	requests chan *request
	closing  chan struct{}
	done     chan struct{} // the committer has ended
	wake     chan struct{} // something was appended; capacity 1

	mu        sync.Mutex
	segments  []*segment // by number; the last may be active
	active    bool       // the last segment is being appended to
	bytes     int64      // of all segments
	setAside  int64      // bytes
	confirmed Position
	oldest    time.Time // when the oldest row that is not confirmed was appended
	closeOnce sync.Once
	closeErr  error

	file   *os.File // the committer's: the active segment
	reader reader   // the consumer's
}

// Open opens the journal in opts.Dir, which no other process may use
// meanwhile, and starts its committer. Old segments are not read before Next
// asks for them.
func Open(opts Options) (*Journal, error) {
	if opts.Now == nil {
		opts.Now = time.Now
	}
	if opts.Rand == nil {
		opts.Rand = rand.Reader
	}
	if opts.Free == nil {
		opts.Free = freeBytes
	}
	if err := os.MkdirAll(opts.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("create the journal's folder: %w", err)
	}
	lock := flock.New(filepath.Join(opts.Dir, "LOCK"))
	held, err := lock.TryLock()
	if err != nil {
		return nil, fmt.Errorf("lock the journal's folder %s: %w", opts.Dir, err)
	}
	if !held {
		return nil, fmt.Errorf("%w by another process: %s; give each collector a data folder of its own, or set journal::directory", ErrInUse, opts.Dir)
	}
	j := &Journal{
		opts: opts, lock: lock,
		requests: make(chan *request), closing: make(chan struct{}), done: make(chan struct{}),
		wake: make(chan struct{}, 1),
	}
	if err := j.load(); err != nil {
		return nil, errors.Join(fmt.Errorf("open the journal %s: %w", opts.Dir, err), lock.Unlock())
	}
	go j.commitLoop()
	return j, nil
}

// Close ends the journal: what waits for an fsync gets it or ErrClosed, and
// the lock is given back. If everything was confirmed nothing stays on disk.
func (j *Journal) Close() error {
	j.closeOnce.Do(func() {
		close(j.closing)
		<-j.done
		j.reader.close()
		j.mu.Lock()
		defer j.mu.Unlock()
		j.active = false
		j.release()
		j.saveConfirmed()
		j.closeErr = j.lock.Unlock()
	})
	return j.closeErr
}

// Stats is a snapshot of a journal.
type Stats struct {
	Bytes            int64     // of all segments
	UnconfirmedBytes int64     // from the confirmed position to the end
	SetAsideBytes    int64     // kept because of damage
	Segments         int       // files
	Oldest           time.Time // when the oldest unconfirmed row was appended; zero: there is none, or it is not yet read
}

// Stats tells how full the journal is.
func (j *Journal) Stats() Stats {
	j.mu.Lock()
	defer j.mu.Unlock()
	s := Stats{Bytes: j.bytes, SetAsideBytes: j.setAside, Segments: len(j.segments), Oldest: j.oldest}
	for _, seg := range j.segments {
		switch {
		case seg.number > j.confirmed.segment:
			s.UnconfirmedBytes += seg.size
		case seg.number == j.confirmed.segment:
			s.UnconfirmedBytes += seg.size - j.confirmed.offset
		}
	}
	return s
}

// end is the position behind the last record. j.mu is held.
func (j *Journal) end() Position {
	if len(j.segments) == 0 {
		return j.confirmed
	}
	last := j.segments[len(j.segments)-1]
	return Position{last.number, last.size}
}

func (j *Journal) randomSalt() (uint64, error) {
	var b [8]byte
	if _, err := io.ReadFull(j.opts.Rand, b[:]); err != nil {
		return 0, fmt.Errorf("read a random number: %w", err)
	}
	return binary.LittleEndian.Uint64(b[:]), nil
}
