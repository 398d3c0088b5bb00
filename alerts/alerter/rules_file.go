package alerter

import (
	"bytes"
	"fmt"
	"io"

	"github.com/retryledger/retryledger/alerts/rules"
	"github.com/retryledger/retryledger/internal/regularfile"
)

// rulesFile is the file of the rules, and what was last read of it.
type rulesFile struct {
	path    string
	content []byte
	looked  []byte // the last look at a change, nil for none: it counts once a second look sees the same
	refused []byte // the last that was read and had a mistake, not to be parsed each second
	failure string // of the last reading that failed, told once
}

// load reads the file for the first time.
func (f *rulesFile) load() (*rules.Set, error) {
	if f.path == "" {
		return rules.Default(), nil
	}
	content, err := f.read()
	if err != nil {
		return nil, err
	}
	f.content = content
	return rules.Load(f.path, content) //nolint:wrapcheck // it names file, line and remedy
}

// changed reads the file again. A change counts when two looks in a row see the same
// bytes: cp and editors empty a file before they write it, and half a file may be right
// too. Without a change, and after a mistake that was told already, set and err are nil.
func (f *rulesFile) changed() (set *rules.Set, err error) {
	if f.path == "" {
		return nil, nil //nolint:nilnil // no change
	}
	content, err := f.read()
	if err == nil {
		if bytes.Equal(content, f.content) {
			f.looked, f.refused, f.failure = nil, nil, ""
			return nil, nil //nolint:nilnil // no change
		}
		if f.looked == nil || !bytes.Equal(content, f.looked) {
			f.looked = append([]byte{}, content...) // never nil
			return nil, nil                         //nolint:nilnil // it may be written right now
		}
		if f.refused != nil && bytes.Equal(content, f.refused) {
			return nil, nil //nolint:nilnil // told already
		}
		if set, err = f.take(content); err == nil {
			f.content, f.looked, f.refused, f.failure = content, nil, nil, ""
			return set, nil
		}
		f.refused = f.looked
	} else {
		f.looked, f.refused = nil, nil
	}
	if err.Error() == f.failure {
		return nil, nil //nolint:nilnil // told already
	}
	f.failure = err.Error()
	return nil, err
}

// take loads a change. A file that lost all it said is refused, for it would resolve what
// fires by the rules that it had.
func (f *rulesFile) take(content []byte) (*rules.Set, error) {
	set, err := rules.Load(f.path, content)
	if err != nil {
		return nil, err //nolint:wrapcheck // it names file, line and remedy
	}
	if set.Blank() {
		return nil, fmt.Errorf("%s is empty; for the default pack alone write \"rules: []\" into it, or leave rules_file out and start the collector again", f.path)
	}
	return set, nil
}

func (f *rulesFile) read() ([]byte, error) {
	file, err := regularfile.Open(f.path)
	if err != nil {
		return nil, fmt.Errorf("read the alert rules: %w; mend rules_file, or leave it out for the default pack", err)
	}
	defer func() { _ = file.Close() }()
	content, err := io.ReadAll(io.LimitReader(file, rules.MaxFileBytes+1)) // one more: Load refuses it
	if err != nil {
		return nil, fmt.Errorf("read the alert rules of %s: %w", f.path, err)
	}
	return content, nil
}
