package deadletter_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/retryledger/retryledger/ingest/deadletter"
	"github.com/retryledger/retryledger/schema"
)

// A disk that is really full: the write itself fails in the middle of a letter, and once
// there is room again the letters after it are as whole as those before.
func TestADiskThatFillsUp(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"); err != nil {
		t.Skipf("mounting a small file system is not allowed here: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	other := filepath.Join(dir, "other")
	require.NoError(t, os.WriteFile(other, make([]byte, 32<<10), 0o600))

	f := deadletter.New(dir, 1<<20)
	acknowledged, refused := 0, 0
	add := func() {
		if _, err := f.Add(letterWithRow(t, acknowledged)); err != nil {
			require.ErrorIs(t, err, syscall.ENOSPC)
			refused++
			return
		}
		acknowledged++
	}
	for refused < 3 {
		add()
	}
	before := acknowledged
	require.Positive(t, before)
	raw, err := os.ReadFile(filepath.Join(dir, deadletter.Name))
	require.NoError(t, err)
	require.Equal(t, byte('\n'), raw[len(raw)-1], "nothing is left of what was refused")

	require.NoError(t, os.Remove(other))
	for range 10 {
		add()
	}
	require.Equal(t, before+10, acknowledged)
	require.Len(t, lettersIn(t, dir), acknowledged)
	seen := map[schema.SpanID]bool{}
	taken, kept, err := f.Replay(func(spans []schema.Span) error {
		for _, s := range spans {
			seen[s.SpanID] = true
		}
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, acknowledged, taken)
	require.Zero(t, kept)
	require.Len(t, seen, acknowledged)
	require.NoError(t, f.Close())
}
