package attribution

// blocks gives out values of one kind from blocks of them: one allocation for many.
// What it gives lives as long as anything of its block does.
type blocks[T any] struct {
	left  []T
	given int
}

// next is a zero value. Each block is as large as all before it together, within bounds.
func (b *blocks[T]) next() *T {
	const smallest, largest = 8, 1024
	if len(b.left) == 0 {
		b.left = make([]T, min(max(smallest, b.given), largest))
	}
	value := &b.left[0]
	b.left = b.left[1:]
	b.given++
	return value
}
