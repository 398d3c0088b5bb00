package alerter

import (
	"os"
	"time"
)

// watchedFile tells whether a file was written. Whoever reads it looks at what it says.
type watchedFile struct {
	path    string // "" for none
	written time.Time
	size    int64
}

// watchFile begins to watch a file as it is now.
func watchFile(path string) *watchedFile {
	f := &watchedFile{path: path}
	f.changed()
	return f
}

// changed tells whether the file was written since the last look. A file that is away
// for a moment, as editors do, has not changed.
func (f *watchedFile) changed() bool {
	if f.path == "" {
		return false
	}
	info, err := os.Stat(f.path)
	if err != nil || info.ModTime().Equal(f.written) && info.Size() == f.size {
		return false
	}
	f.written, f.size = info.ModTime(), info.Size()
	return true
}
