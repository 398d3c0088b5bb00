package journal

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/shirou/gopsutil/v4/disk"

	"github.com/retryledger/retryledger/schema"
)

// maxGroup is how many requests share one fsync at most; it bounds how long
// the first of them waits for the writes of the others.
const maxGroup = 1024

// request is one Append: its encoded records and where each begins.
type request struct {
	buf    []byte
	starts []int
	result chan error // capacity 1: a caller that left must not hold the committer
}

var buffers sync.Pool // of *request

func getRequest() *request {
	r, ok := buffers.Get().(*request)
	if !ok {
		r = new(request)
	}
	r.buf, r.starts, r.result = r.buf[:0], r.starts[:0], make(chan error, 1)
	return r
}

// Append returns nil when spans are on the disk. With ErrFull, a full disk or
// any other error but ErrRowTooLarge and ErrTooLarge, trying again later may
// help, and none of spans was acknowledged. When ctx ends first its error is
// returned, and the spans may have been kept or not.
func (j *Journal) Append(ctx context.Context, spans []schema.Span) error {
	if len(spans) == 0 {
		return nil
	}
	r := getRequest()
	var err error
	r.buf, err = encode(r.buf, spans, func(b []byte) []byte {
		r.starts = append(r.starts, len(b))
		return reserveHeader(b)
	}, func(b []byte, rows int) {
		h := b[r.starts[len(r.starts)-1]:]
		describePayload(h, h[headerSize:], rows)
	})
	if err != nil {
		return err
	}
	if int64(len(r.buf)) > j.opts.MaxBytes {
		return fmt.Errorf("%d spans take %d bytes, journal::max_size_mib allows %d in all: %w", len(spans), len(r.buf), j.opts.MaxBytes, ErrTooLarge)
	}
	select {
	case j.requests <- r:
	case <-j.closing:
		return ErrClosed
	case <-ctx.Done():
		return fmt.Errorf("wait for the journal: %w", ctx.Err())
	}
	select {
	case err = <-r.result:
		if cap(r.buf) <= 4<<20 { // a rare giant is not worth keeping
			buffers.Put(r)
		}
		return err
	case <-ctx.Done():
		return fmt.Errorf("wait for the journal's disk: %w", ctx.Err())
	}
}

// commitLoop is the only writer of segments.
func (j *Journal) commitLoop() {
	defer close(j.done)
	group := make([]*request, 0, maxGroup)
	for {
		select {
		case r := <-j.requests:
			group = j.gather(append(group[:0], r))
			j.commit(group)
		case <-j.closing:
			if j.file != nil {
				_ = j.file.Close() // all of it was synced
			}
			return
		}
	}
}

// gather adds the requests that wait already, and those of the window.
func (j *Journal) gather(group []*request) []*request {
	var window <-chan time.Time
	if j.opts.GroupWindow > 0 {
		timer := time.NewTimer(j.opts.GroupWindow)
		defer timer.Stop()
		window = timer.C
	}
	for len(group) < maxGroup {
		select {
		case r := <-j.requests:
			group = append(group, r)
			continue
		default:
		}
		if window == nil {
			return group
		}
		select {
		case r := <-j.requests:
			group = append(group, r)
		case <-window:
			return group
		case <-j.closing:
			return group
		}
	}
	return group
}

// commit writes a group, syncs it and answers every request in it.
func (j *Journal) commit(group []*request) {
	now := j.opts.Now()
	free, freeErr := uint64(0), error(nil)
	if j.opts.MinFreeBytes > 0 {
		free, freeErr = j.opts.Free(j.opts.Dir)
	}
	j.mu.Lock()
	total := j.bytes
	j.mu.Unlock()

	var written []*request // and not yet synced
	var length int64       // bytes of written
	refuse := func(err error) {
		for _, r := range written {
			r.result <- err
		}
		written, length = written[:0], 0
	}
	flush := func() {
		if len(written) == 0 {
			return
		}
		if err := j.file.Sync(); err != nil {
			// What the kernel holds of a file after a failed fsync is unknown;
			// the segment keeps what earlier fsyncs covered and gets no more.
			j.abandon()
			refuse(fmt.Errorf("sync the journal: %w", err))
			return
		}
		j.publish(length, now)
		for _, r := range written {
			r.result <- nil
		}
		written, length = written[:0], 0
	}
	for _, r := range group {
		n := int64(len(r.buf))
		if freeErr != nil {
			r.result <- fmt.Errorf("ask for the free space of %s: %w", j.opts.Dir, freeErr)
			continue
		}
		if j.opts.MinFreeBytes > 0 && free < j.opts.MinFreeBytes+uint64(n) {
			r.result <- fmt.Errorf("%w: %s has %d MiB free and must keep %d MiB (journal::min_free_disk_mib); free some space",
				ErrDiskLow, j.opts.Dir, free>>20, j.opts.MinFreeBytes>>20)
			continue
		}
		if total+n > j.opts.MaxBytes {
			r.result <- fmt.Errorf("%w: %s holds %d MiB that the store has not taken, and may hold %d MiB (journal::max_size_mib); look for why the store is behind",
				ErrFull, j.opts.Dir, total>>20, j.opts.MaxBytes>>20)
			continue
		}
		if err := j.room(n, length, now, flush); err != nil {
			r.result <- err
			continue
		}
		for _, at := range r.starts {
			sealHeader(r.buf[at:], now)
		}
		written = append(written, r)
		if _, err := j.file.Write(r.buf); err != nil {
			j.abandon()
			refuse(fmt.Errorf("write to the journal %s: %w; free some space if the disk is full", j.opts.Dir, err))
			continue
		}
		length += n
		total += n
		free -= min(free, uint64(n))
	}
	flush()
}

// room makes sure that there is an active segment with room for n bytes more,
// behind pending ones that were written and not published.
func (j *Journal) room(n, pending int64, now time.Time, flush func()) error {
	if j.file != nil {
		j.mu.Lock()
		size := j.segments[len(j.segments)-1].size + pending
		j.mu.Unlock()
		if size == 0 || size+n <= j.opts.SegmentBytes {
			return nil
		}
		flush()
		j.finish()
	}
	salt, err := j.randomSalt()
	if err != nil {
		return err
	}
	j.mu.Lock()
	// The clock keeps numbers from coming twice when no segment is left.
	s := &segment{number: max(j.end().segment+1, uint64(now.UnixMilli())), salt: salt}
	j.mu.Unlock()
	path := filepath.Join(j.opts.Dir, s.name())
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("begin a segment of the journal: %w", err)
	}
	// Without this a power cut could take the file with all that was synced in it.
	if err := syncDir(j.opts.Dir); err != nil {
		return errors.Join(fmt.Errorf("sync the journal's folder: %w", err), f.Close(), os.Remove(path))
	}
	j.file = f
	j.mu.Lock()
	j.segments = append(j.segments, s)
	j.active = true
	j.mu.Unlock()
	return nil
}

// publish lets the reader see length more bytes of the active segment.
func (j *Journal) publish(length int64, now time.Time) {
	j.mu.Lock()
	if j.oldest.IsZero() {
		j.oldest = now
	}
	j.segments[len(j.segments)-1].size += length
	j.bytes += length
	j.mu.Unlock()
	select {
	case j.wake <- struct{}{}:
	default:
	}
}

// finish closes the active segment; the next append begins another.
func (j *Journal) finish() {
	if j.file == nil {
		return
	}
	_ = j.file.Close() // all that counts in it was synced
	j.file = nil
	j.mu.Lock()
	defer j.mu.Unlock()
	j.active = false
	if last := len(j.segments) - 1; j.segments[last].size == 0 {
		_ = os.Remove(filepath.Join(j.opts.Dir, j.segments[last].name()))
		j.segments = j.segments[:last]
	}
	j.release()
}

// abandon finishes the active segment after a failed write: what no fsync
// covered is cut off, so that refused rows do not come back after a restart.
// Should that fail too they may, which costs a duplicate and nothing else.
func (j *Journal) abandon() {
	j.mu.Lock()
	size := j.segments[len(j.segments)-1].size
	j.mu.Unlock()
	_ = j.file.Truncate(size)
	j.finish()
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

func freeBytes(path string) (uint64, error) {
	usage, err := disk.Usage(path)
	if err != nil {
		return 0, err
	}
	return usage.Free, nil
}
