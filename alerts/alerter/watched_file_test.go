package alerter

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestWatchedFile(t *testing.T) {
	assert.False(t, watchFile("").changed())
	path := filepath.Join(t.TempDir(), "alertmanager.yml")
	f := watchFile(path)
	assert.False(t, f.changed(), "there is none")
	write(t, path, "one")
	assert.True(t, f.changed())
	assert.False(t, f.changed(), "told once")
	write(t, path, "longer")
	assert.True(t, f.changed())
	require.NoError(t, os.Chtimes(path, time.Time{}, time.Now().Add(time.Hour)))
	assert.True(t, f.changed(), "of one size")
	require.NoError(t, os.Remove(path))
	assert.False(t, f.changed(), "an editor replaces it")
}
