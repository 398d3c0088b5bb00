package regularfile

import (
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestOpen(t *testing.T) {
	dir := t.TempDir()
	name, link, pipe := filepath.Join(dir, "a"), filepath.Join(dir, "link"), filepath.Join(dir, "pipe")
	require.NoError(t, os.WriteFile(name, []byte("text"), 0o600))
	require.NoError(t, os.Symlink(name, link))
	require.NoError(t, syscall.Mkfifo(pipe, 0o600))
	for _, name := range []string{name, link} {
		file, err := Open(name)
		require.NoError(t, err)
		text, err := io.ReadAll(file)
		require.NoError(t, err)
		assert.Equal(t, "text", string(text))
		require.NoError(t, file.Close())
	}
	for name, want := range map[string]string{pipe: "a pipe", dir: "a folder", "/dev/zero": "a device"} {
		_, err := Open(name)
		require.ErrorIs(t, err, ErrNotRegular)
		var path *fs.PathError
		require.ErrorAs(t, err, &path)
		assert.Equal(t, "it is no regular file but "+want, path.Err.Error())
	}
	_, err := Open(filepath.Join(dir, "gone"))
	require.ErrorIs(t, err, fs.ErrNotExist)
}
