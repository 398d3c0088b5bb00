package datadir

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestFolderOfEachSystem(t *testing.T) {
	home := func() (string, error) { return "/home/ada", nil }
	noHome := func() (string, error) { return "", os.ErrNotExist }
	env := func(pairs ...string) func(string) string {
		return func(name string) string {
			for i := 0; i < len(pairs); i += 2 {
				if pairs[i] == name {
					return pairs[i+1]
				}
			}
			return ""
		}
	}
	for _, c := range []struct {
		goos string
		env  func(string) string
		want string
	}{
		{"linux", env(), "/home/ada/.local/share/retryledger"},
		{"linux", env("XDG_DATA_HOME", "/data"), "/data/retryledger"},
		{"linux", env("XDG_DATA_HOME", "relative"), "/home/ada/.local/share/retryledger"},
		{"darwin", env("XDG_DATA_HOME", "/data"), "/home/ada/Library/Application Support/retryledger"},
		{"windows", env("LOCALAPPDATA", "/appdata"), "/appdata/retryledger"},
		{"windows", env(), "/home/ada/AppData/Local/retryledger"},
	} {
		got, err := on(c.goos, c.env, home)
		require.NoError(t, err)
		assert.Equal(t, filepath.FromSlash(c.want), got, c.goos)
	}
	_, err := on("linux", env(), noHome)
	require.ErrorIs(t, err, os.ErrNotExist)
}
