package signals

// series is one signal's sums of one label set, by the second.
type series struct {
	id     uint32
	labels Labels
	blocks map[int64]*block // by second / blockSeconds
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
	b := s.blocks[second/blockSeconds]
	if b == nil {
		b = new(block)
		s.blocks[second/blockSeconds] = b
	}
	b.add(second, unsettled, numerator, denominator)
}

// remove undoes an add, unless the block is gone.
func (s *series) remove(second int64, unsettled bool, numerator, denominator int64) {
	if b := s.blocks[second/blockSeconds]; b != nil {
		b.add(second, unsettled, -numerator, -denominator)
	}
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
	for n := range s.blocks {
		if (n+1)*blockSeconds <= before {
			delete(s.blocks, n)
		}
	}
}

// sum is that of the seconds after from up to to, of what is unsettled only up to
// settled.
func (s *series) sum(from, to, settled int64) (n sums) {
	for i := (from + 1) / blockSeconds; i <= to/blockSeconds; i++ {
		b := s.blocks[i]
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
