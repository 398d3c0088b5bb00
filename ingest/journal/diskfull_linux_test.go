package journal_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/retryledger/retryledger/ingest/journal"
)

// smallDisk mounts a file system of the given size, or skips the test.
func smallDisk(t *testing.T, size string) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size="+size); err != nil {
		t.Skipf("mounting a small file system is not allowed here: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	return dir
}

// A disk that is really full: the write itself fails, in the middle of a record.
func TestADiskThatFillsUp(t *testing.T) {
	dir := smallDisk(t, "512k")
	opts := options(filepath.Join(dir, "journal"))
	j, err := journal.Open(opts)
	require.NoError(t, err)
	acknowledged, refusal := fillUp(t, j)
	require.ErrorIs(t, refusal, syscall.ENOSPC)
	require.Positive(t, acknowledged)
	for range 20 { // senders try again
		if err := j.Append(t.Context(), plainSpans(300)); err == nil {
			acknowledged += 300
		} else {
			require.ErrorIs(t, err, syscall.ENOSPC)
		}
	}
	require.NoError(t, j.Close())

	// Nothing acknowledged is lost, over a restart on the full disk.
	damaged := 0
	opts.Damage = func(journal.Damage) { damaged++ }
	j, err = journal.Open(opts)
	require.NoError(t, err)
	n, end := count(t, j)
	require.Equal(t, acknowledged, n, "and nothing refused comes back")
	require.Zero(t, damaged)

	// Confirming frees the disk, which needs no room.
	j.Confirm(end)
	require.NoError(t, j.Append(t.Context(), plainSpans(100)))
	n, _ = count(t, j)
	require.Equal(t, 100, n)
	require.NoError(t, j.Close())
	left, err := os.ReadDir(opts.Dir)
	require.NoError(t, err)
	require.LessOrEqual(t, len(left), 3)
}
