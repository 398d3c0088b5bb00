package signals

import "slices"

// series is one signal's sums of one label set, by the second.
type series struct {
	id     uint32
	labels Labels
	first  int64    // number of blocks[0]: a block's number is its seconds / blockSeconds
	blocks []*block // nil where nothing was added; neither the first nor the last is

	notedIn uint64 // the last row that noted something for the series, and where: see Cache.take
	notedAt int
}

// blockSeconds is how many seconds lie together: a window adds up whole blocks, and
// seconds only at its ends.
const blockSeconds = 32

// sums are of numerators and denominators.
type sums struct{ numerator, denominator int64 }

func (s *sums) add(numerator, denominator int64) {
	s.numerator += numerator
	s.denominator += denominator
}

// counts are the sums of each second of a block, and of all.
type counts struct {
	seconds [blockSeconds]sums
	all     sums
}

type block struct {
	settled   counts
	unsettled *counts // nil if there never were any
}

func (s *series) add(second int64, unsettled bool, numerator, denominator int64) {
	b := s.block(second / blockSeconds)
	if b == nil {
		b = s.make(second / blockSeconds)
	}
	b.add(second, unsettled, numerator, denominator)
}

// remove undoes an add, unless the block is gone.
func (s *series) remove(second int64, unsettled bool, numerator, denominator int64) {
	if b := s.block(second / blockSeconds); b != nil {
		b.add(second, unsettled, -numerator, -denominator)
	}
}

// block is the one of a number, nil if there is none.
func (s *series) block(n int64) *block {
	if i := n - s.first; i >= 0 && i < int64(len(s.blocks)) {
		return s.blocks[i]
	}
	return nil
}

// make makes the block of a number. What lies between the first and the last is bounded by
// what a cache takes.
func (s *series) make(n int64) *block {
	switch {
	case len(s.blocks) == 0:
		s.first, s.blocks = n, append(s.blocks, nil)
	case n < s.first:
		s.blocks = slices.Insert(s.blocks, 0, make([]*block, s.first-n)...)
		s.first = n
	case n >= s.first+int64(len(s.blocks)):
		s.blocks = append(s.blocks, make([]*block, n-s.first-int64(len(s.blocks))+1)...)
	}
	b := new(block)
	s.blocks[n-s.first] = b
	return b
}

func (b *block) add(second int64, unsettled bool, numerator, denominator int64) {
	to := &b.settled
	if unsettled {
		if b.unsettled == nil {
			b.unsettled = new(counts)
		}
		to = b.unsettled
	}
	to.seconds[second%blockSeconds].add(numerator, denominator)
	to.all.add(numerator, denominator)
}

// drop forgets the blocks that end before a second.
func (s *series) drop(before int64) {
	gone := 0
	for gone < len(s.blocks) && (s.blocks[gone] == nil || (s.first+int64(gone)+1)*blockSeconds <= before) {
		gone++
	}
	s.first += int64(gone)
	s.blocks = slices.Delete(s.blocks, 0, gone)
}

// sum is that of the seconds after from up to to, of what is unsettled only up to
// settled.
func (s *series) sum(from, to, settled int64) (n sums) {
	last := min(to/blockSeconds, s.first+int64(len(s.blocks))-1)
	for i := max((from+1)/blockSeconds, s.first); i <= last; i++ {
		b := s.blocks[i-s.first]
		if b == nil {
			continue
		}
		b.settled.sum(i*blockSeconds, from, to, &n)
		if b.unsettled != nil {
			b.unsettled.sum(i*blockSeconds, from, min(to, settled), &n)
		}
	}
	return n
}

// sum adds to n the seconds after from up to to, of counts that begin at first.
func (c *counts) sum(first, from, to int64, n *sums) {
	low, high := max(from+1, first), min(to, first+blockSeconds-1)
	if low == first && high == first+blockSeconds-1 {
		n.add(c.all.numerator, c.all.denominator)
		return
	}
	for second := low; second <= high; second++ {
		n.add(c.seconds[second-first].numerator, c.seconds[second-first].denominator)
	}
}
