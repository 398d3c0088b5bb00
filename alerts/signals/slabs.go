package signals

// slabs keep many short byte strings without a pointer to each. A slab is given back when
// all that was put into it has been dropped; what is put together is mostly dropped
// together.
type slabs struct {
	all     map[uint32]*slab
	current uint32 // takes what comes next
}

type slab struct {
	bytes []byte
	live  int // pieces that were not dropped
}

// piece is where a byte string is; the zero piece is the empty one.
type piece struct{ slab, from, length uint32 }

const slabBytes = 256 << 10

// put keeps a copy.
func (s *slabs) put(content []byte) piece {
	if len(content) == 0 {
		return piece{}
	}
	into := s.all[s.current]
	if into == nil || len(into.bytes)+len(content) > cap(into.bytes) {
		if s.all == nil {
			s.all = make(map[uint32]*slab)
		}
		if into != nil && into.live == 0 {
			delete(s.all, s.current)
		}
		s.current++
		into = &slab{bytes: make([]byte, 0, max(slabBytes, len(content)))}
		s.all[s.current] = into
	}
	p := piece{s.current, uint32(len(into.bytes)), uint32(len(content))}
	into.bytes = append(into.bytes, content...)
	into.live++
	return p
}

// get is the byte string, until the next put.
func (s *slabs) get(p piece) []byte {
	if p.length == 0 {
		return nil
	}
	return s.all[p.slab].bytes[p.from : p.from+p.length]
}

// drop gives a byte string up.
func (s *slabs) drop(p piece) {
	if p.length == 0 {
		return
	}
	from := s.all[p.slab]
	from.live--
	if from.live > 0 {
		return
	}
	if p.slab == s.current {
		from.bytes = from.bytes[:0]
		return
	}
	delete(s.all, p.slab)
}
