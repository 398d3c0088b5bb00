package journal

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"time"
)

var segmentName = regexp.MustCompile(`^([0-9a-f]{16})-([0-9a-f]{16})\.journal$`)

const (
	confirmedName = "confirmed.json"
	setAsideName  = "set-aside"
)

// confirmedFile is the confirmed position on disk. It counts only for the
// very file it was written for.
type confirmedFile struct {
	Segment string   `json:"segment"`
	Offset  int64    `json:"offset"`
	Damaged []string `json:"damaged,omitempty"` // segments to set aside, not remove
}

func parseSegmentName(name string) (*segment, bool) {
	m := segmentName.FindStringSubmatch(name)
	if m == nil {
		return nil, false
	}
	number, err1 := strconv.ParseUint(m[1], 16, 64)
	salt, err2 := strconv.ParseUint(m[2], 16, 64)
	return &segment{number: number, salt: salt}, err1 == nil && err2 == nil
}

// load lists the segments and takes up the confirmed position.
func (j *Journal) load() error {
	entries, err := os.ReadDir(j.opts.Dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		s, ok := parseSegmentName(e.Name())
		if !ok || !e.Type().IsRegular() {
			continue
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		if s.size = info.Size(); s.size == 0 { // begun, and then nothing was written
			if err := os.Remove(filepath.Join(j.opts.Dir, s.name())); err != nil {
				return err
			}
			continue
		}
		j.segments = append(j.segments, s)
		j.bytes += s.size
	}
	slices.SortFunc(j.segments, func(a, b *segment) int {
		if a.number < b.number || a.number == b.number && a.salt < b.salt {
			return -1
		}
		return 1
	})
	for i := 1; i < len(j.segments); i++ {
		if j.segments[i].number == j.segments[i-1].number {
			return fmt.Errorf("%s and %s have one number: two journals were copied into one folder; move one of them elsewhere",
				j.segments[i-1].name(), j.segments[i].name())
		}
	}
	j.loadConfirmed()
	j.reader.at, j.reader.delivered = j.confirmed, j.confirmed
	if j.setAside, err = j.setAsideBytes(); err != nil {
		return err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.release()
	return nil
}

// loadConfirmed reads the confirmed position. Whatever is wrong with it, the
// worst is that confirmed rows are read again.
func (j *Journal) loadConfirmed() {
	raw, err := os.ReadFile(filepath.Join(j.opts.Dir, confirmedName))
	if err != nil {
		return
	}
	var c confirmedFile
	if json.Unmarshal(raw, &c) != nil {
		return
	}
	for _, s := range j.segments {
		if slices.Contains(c.Damaged, s.name()) {
			s.damaged = true
		}
		if s.name() == c.Segment && j.atRecord(s, c.Offset) {
			j.confirmed = Position{s.number, c.Offset}
		}
	}
}

// atRecord tells whether a record begins or the segment ends at offset. Where
// bytes went missing before it, neither is likely, and the segment is better
// read from its start.
func (j *Journal) atRecord(s *segment, offset int64) bool {
	if offset < 0 || offset >= s.size {
		return offset == s.size
	}
	f, err := os.Open(filepath.Join(j.opts.Dir, s.name()))
	if err != nil {
		return false
	}
	r := reader{file: f}
	defer r.close()
	_, _, err = r.load(offset, s.size)
	return err == nil
}

// saveConfirmed writes the confirmed position. j.mu is held. A failure is of
// no consequence but repeated work after a restart.
func (j *Journal) saveConfirmed() {
	var c confirmedFile
	for _, s := range j.segments {
		if s.number == j.confirmed.segment {
			c.Segment, c.Offset = s.name(), j.confirmed.offset
		}
		if s.damaged {
			c.Damaged = append(c.Damaged, s.name())
		}
	}
	path := filepath.Join(j.opts.Dir, confirmedName)
	if c.Segment == "" {
		_ = os.Remove(path)
		return
	}
	raw, err := json.Marshal(c)
	if err != nil {
		return
	}
	if os.WriteFile(path+".new", raw, 0o600) == nil {
		_ = os.Rename(path+".new", path)
	}
}

// Confirm says that every record up to end is safe in the store. Segments
// that hold nothing else are removed.
func (j *Journal) Confirm(end Position) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.confirm(end)
}

// confirm is Confirm. j.mu is held.
func (j *Journal) confirm(end Position) {
	if end == j.reader.delivered && end.before(j.reader.at) {
		end = j.reader.at // behind the last record lay only what was passed over
	}
	if !j.confirmed.before(end) {
		return
	}
	j.confirmed = end
	if !end.before(j.end()) {
		j.oldest = time.Time{}
	}
	j.release()
	j.saveConfirmed()
}

// release removes the segments in which everything is confirmed, except the
// active one. j.mu is held.
func (j *Journal) release() {
	for len(j.segments) > 0 {
		s := j.segments[0]
		if len(j.segments) == 1 && j.active || j.confirmed.before(Position{s.number, s.size}) {
			return
		}
		path := filepath.Join(j.opts.Dir, s.name())
		var err error
		if s.damaged {
			err = j.putAside(path, s)
		} else {
			err = os.Remove(path)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return // the next confirmation tries again
		}
		j.bytes -= s.size
		j.segments = j.segments[1:]
	}
}

// putAside moves a damaged segment to where it does not count any more, and
// makes room there. j.mu is held.
func (j *Journal) putAside(path string, s *segment) error {
	dir := filepath.Join(j.opts.Dir, setAsideName)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if err := os.Rename(path, filepath.Join(dir, s.name())); err != nil {
		return err
	}
	j.setAside += s.size
	entries, _ := os.ReadDir(dir) // by name, which is by age; without them no room is made this time
	for _, e := range entries {
		if j.setAside <= j.opts.SetAsideBytes {
			break
		}
		info, err := e.Info()
		if err == nil && os.Remove(filepath.Join(dir, e.Name())) == nil {
			j.setAside -= info.Size()
			if j.opts.GaveUp != nil {
				j.opts.GaveUp(e.Name(), info.Size())
			}
		}
	}
	return nil
}

func (j *Journal) setAsideBytes() (int64, error) {
	entries, err := os.ReadDir(filepath.Join(j.opts.Dir, setAsideName))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	var total int64
	for _, e := range entries {
		if info, err := e.Info(); err == nil {
			total += info.Size()
		}
	}
	return total, nil
}
