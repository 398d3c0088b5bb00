package dialect

import (
	"slices"
	"strings"

	"github.com/cespare/xxhash/v2"
)

// idInName stands in a name for what identifies one thing among many. A step is a place
// in a pipeline, not a thing that went through it: with ids in their names a million
// things would be a million steps.
const idInName = "{id}"

// withoutIDs replaces the ids in a name, and returns them too. Ids are UUIDs, hexadecimal
// digits from sixteen on, decimal ones from ten on (Unix times, snowflakes), and ULIDs,
// each as a word of its own. Most names have none and are not copied.
func withoutIDs(name string) (kept string, ids []string) {
	const shortest = 10 // of what is replaced, in bytes
	if len(name) < shortest {
		return name, nil
	}
	var out strings.Builder
	done := 0 // up to here name is in out
	for i := 0; i < len(name); {
		if !isAlnum(name[i]) {
			i++
			continue
		}
		end := i
		for end < len(name) && isAlnum(name[end]) {
			end++
		}
		switch length := uuidAt(name[i:]); {
		case length > 0:
			end = i + length
		case !isID(name[i:end]):
			i = end
			continue
		}
		ids = append(ids, name[i:end])
		out.WriteString(name[done:i])
		out.WriteString(idInName)
		i, done = end, end
	}
	if len(ids) == 0 {
		return name, nil
	}
	out.WriteString(name[done:])
	return out.String(), ids
}

// uuidAt is the length of a UUID in its usual form at the beginning of text, else 0.
func uuidAt(text string) int {
	const length = 36
	if len(text) < length || len(text) > length && isAlnum(text[length]) {
		return 0
	}
	for i := range length {
		hyphen := i == 8 || i == 13 || i == 18 || i == 23
		if hyphen != (text[i] == '-') || !hyphen && !isHex(text[i]) {
			return 0
		}
	}
	return length
}

// isID tells whether a word is an id by itself.
func isID(word string) bool {
	digits, hex, upper := 0, 0, 0
	for i := range len(word) {
		c := word[i]
		switch {
		case '0' <= c && c <= '9':
			digits++
			hex++
			upper++
		case isHex(c):
			hex++
			if c <= 'F' {
				upper++
			}
		case 'G' <= c && c <= 'Z':
			upper++
		}
	}
	switch n := len(word); {
	case digits == n:
		return n >= 10
	case hex == n:
		return n >= 16 && digits > 0
	}
	return len(word) == 26 && upper == 26 && digits > 0 && word[0] <= '7' // a ULID
}

func isAlnum(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}

func isHex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}

// cleanNames replaces the ids in all names that group spans. An id in the name of a step
// is the item that the step worked on: another item is no repeat.
func (r *reading) cleanNames() {
	row := r.row
	var items []string
	clean := func(name *string) []string {
		kept, ids := withoutIDs(*name)
		*name = kept
		return ids
	}
	items = append(items, clean(&row.Step)...)
	items = append(items, clean(&row.Node)...)
	clean(&row.Name) // what it says may be the id of an attempt, so it is no item
	for i := range row.Violations {
		clean(&row.Violations[i].Node)
	}
	for i := range row.UnfinishedSteps {
		clean(&row.UnfinishedSteps[i])
	}
	if len(items) > 0 {
		slices.Sort(items)
		row.ItemHash = ItemOf(row.ItemHash, slices.Compact(items)...)
	}
}

// ItemOf is the hash of an item that names tell more of than item says already.
func ItemOf(item uint64, names ...string) uint64 {
	var d xxhash.Digest
	d.Reset()
	for shift := 0; shift < 64; shift += 8 {
		_, _ = d.Write([]byte{byte(item >> shift)})
	}
	for _, name := range names {
		_, _ = d.WriteString(name)
		_, _ = d.Write([]byte{0})
	}
	return d.Sum64() | 1
}
