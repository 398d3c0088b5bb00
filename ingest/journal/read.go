package journal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/retryledger/retryledger/schema"
)

// ErrEmpty is returned by TryNext when everything has been read.
var ErrEmpty = errors.New("nothing more in the journal")

var (
	errChecksum = errors.New("the checksum does not match")
	errNoRecord = errors.New("no record begins here")
	errTorn     = errors.New("the last record is torn")
)

// Record is what one Append wrote, or a part of it.
type Record struct {
	Spans    []schema.Span
	Appended time.Time
	// End is the position behind the record, for Confirm.
	End Position
}

// reader is where the consumer stands.
type reader struct {
	at        Position
	delivered Position // the end of the last record that was returned
	file      *os.File
	seg       *segment
	payload   []byte
}

func (r *reader) close() {
	if r.file != nil {
		_ = r.file.Close()
	}
	r.file, r.seg = nil, nil
}

// Next returns the next record, in the order of acknowledgement, starting
// behind the confirmed position when the journal was opened. It waits for one
// until ctx ends or the journal is closed. An error that is neither of these
// comes from the disk; call again.
func (j *Journal) Next(ctx context.Context) (Record, error) {
	for {
		rec, err := j.TryNext()
		if !errors.Is(err, ErrEmpty) {
			return rec, err
		}
		select {
		case <-j.wake:
		case <-j.closing:
			return Record{}, ErrClosed
		case <-ctx.Done():
			return Record{}, ctx.Err()
		}
	}
}

// TryNext is Next without the wait: ErrEmpty says that everything has been read.
func (j *Journal) TryNext() (Record, error) {
	r := &j.reader
	for {
		size, err := j.enter(r)
		if err != nil {
			if errors.Is(err, ErrEmpty) && r.delivered.before(r.at) {
				j.mu.Lock()
				if !j.confirmed.before(r.delivered) {
					j.confirm(r.delivered)
				}
				j.mu.Unlock()
			}
			return Record{}, err
		}
		rec, length, err := j.readRecord(r, size)
		if err == nil {
			start := r.at
			r.at.offset += length
			rec.End, r.delivered = r.at, r.at
			j.mu.Lock()
			if !j.confirmed.before(start) {
				j.oldest = rec.Appended
			}
			j.mu.Unlock()
			return rec, nil
		}
		if !errors.Is(err, errChecksum) && !errors.Is(err, errNoRecord) && !errors.Is(err, ErrMalformed) &&
			!errors.Is(err, ErrNewerFormat) && !errors.Is(err, errTorn) {
			return Record{}, fmt.Errorf("read the journal's segment %s at %d: %w", r.seg.name(), r.at.offset, err)
		}
		if err := j.passOver(r, size, err); err != nil {
			return Record{}, err
		}
	}
}

// enter moves r to a segment that has unread bytes and returns how far the
// segment may be read.
func (j *Journal) enter(r *reader) (int64, error) {
	j.mu.Lock()
	var seg *segment
	var size int64
	for _, s := range j.segments {
		if s.number < r.at.segment || s.number == r.at.segment && s.size <= r.at.offset || s.size == 0 {
			continue
		}
		seg, size = s, s.size
		break
	}
	j.mu.Unlock()
	if seg == nil {
		return 0, ErrEmpty
	}
	if r.seg == seg {
		return size, nil
	}
	r.close()
	f, err := os.Open(filepath.Join(j.opts.Dir, seg.name()))
	if err != nil {
		return 0, fmt.Errorf("open a segment of the journal: %w", err)
	}
	if seg.number != r.at.segment {
		r.at = Position{segment: seg.number}
	}
	r.file, r.seg = f, seg
	return size, nil
}

// readRecord reads the record at r.at; its length includes the header.
func (j *Journal) readRecord(r *reader, size int64) (Record, int64, error) {
	payload, h, err := r.load(r.at.offset, size)
	if err != nil {
		return Record{}, 0, err
	}
	spans, err := decode(make([]schema.Span, 0, min(h.rows, maxRows)), payload)
	if err != nil {
		return Record{}, 0, err
	}
	return Record{Spans: spans, Appended: h.appended}, headerSize + h.length, nil
}

// load reads a record's payload and checks its checksums.
func (r *reader) load(at, size int64) ([]byte, header, error) {
	if size-at < headerSize {
		return nil, header{}, errTorn
	}
	var raw [headerSize]byte
	if err := r.readAt(raw[:], at); err != nil {
		return nil, header{}, err
	}
	h, ok := parseHeader(raw[:])
	if !ok {
		return nil, header{}, errNoRecord
	}
	if at+headerSize+h.length > size {
		return nil, header{}, errTorn
	}
	if int64(cap(r.payload)) < h.length {
		r.payload = make([]byte, h.length)
	}
	payload := r.payload[:h.length]
	if err := r.readAt(payload, at+headerSize); err != nil {
		return nil, header{}, err
	}
	if crc32.Checksum(payload, castagnoli) != h.crc {
		return nil, header{}, errChecksum
	}
	return payload, h, nil
}

// readAt fills b. A sector that the disk cannot give reads as zeros, which no
// checksum accepts: one bad sector must not hold up the records behind it.
func (r *reader) readAt(b []byte, at int64) error {
	_, err := r.file.ReadAt(b, at)
	if err == nil || errors.Is(err, io.EOF) {
		// A file shorter than it was leaves the rest of b as damage.
		return nil
	}
	if !errors.Is(err, syscall.EIO) {
		return err
	}
	const sector = 4096
	for len(b) > 0 {
		n := min(len(b), sector-int(at%sector))
		if _, err := r.file.ReadAt(b[:n], at); err != nil && !errors.Is(err, io.EOF) {
			clear(b[:n])
		}
		b, at = b[n:], at+int64(n)
	}
	return nil
}

// passOver moves r behind the bytes at r.at that hold no readable record: to
// the next record whose checksums hold, else to the end. Lengths are not
// believed, for bytes may have gone missing as well as changed. What a crash
// leaves of a record that it cut short is no damage.
func (j *Journal) passOver(r *reader, size int64, reason error) error {
	start := r.at.offset
	next, err := r.findRecord(start+1, size)
	if err != nil {
		return fmt.Errorf("read the journal's segment %s: %w", r.seg.name(), err)
	}
	torn := errors.Is(reason, errTorn)
	if !torn && next == size {
		if torn, err = r.zeros(start, size); err != nil {
			return fmt.Errorf("read the journal's segment %s: %w", r.seg.name(), err)
		}
	}
	r.at.offset = next
	if torn && next == size {
		return nil
	}
	j.mu.Lock()
	r.seg.damaged = true
	j.mu.Unlock()
	if j.opts.Damage != nil {
		j.opts.Damage(Damage{Segment: r.seg.name(), Offset: start, Length: next - start, Reason: reason})
	}
	return nil
}

// findRecord returns where the first whole record at or behind from begins, or size.
func (r *reader) findRecord(from, size int64) (int64, error) {
	const chunk = 64 << 10
	buf := make([]byte, chunk)
	for from < size {
		n := min(chunk, size-from)
		if err := r.readAt(buf[:n], from); err != nil {
			return 0, err
		}
		i := bytes.Index(buf[:n], []byte(magic))
		if i < 0 {
			if n < chunk {
				return size, nil
			}
			from += n - int64(len(magic)) + 1 // the magic may straddle two chunks
			continue
		}
		from += int64(i)
		_, _, err := r.load(from, size)
		if err == nil {
			return from, nil
		}
		if !errors.Is(err, errNoRecord) && !errors.Is(err, errChecksum) && !errors.Is(err, errTorn) {
			return 0, err
		}
		from++
	}
	return size, nil
}

// zeros tells whether there is nothing but zeros: a file that grew and whose
// content a power cut kept from the disk.
func (r *reader) zeros(from, size int64) (bool, error) {
	buf := make([]byte, 64<<10)
	for from < size {
		n := min(int64(len(buf)), size-from)
		if err := r.readAt(buf[:n], from); err != nil {
			return false, err
		}
		if len(bytes.Trim(buf[:n], "\x00")) > 0 {
			return false, nil
		}
		from += n
	}
	return true, nil
}
