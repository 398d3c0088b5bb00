//go:build linux

package procfs

import (
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestMemoryAndChildren(t *testing.T) {
	now, err := Memory(os.Getpid(), Resident)
	require.NoError(t, err)
	peak, err := Memory(os.Getpid(), Peak)
	require.NoError(t, err)
	assert.Greater(t, now, int64(1<<20))
	assert.GreaterOrEqual(t, peak, now/2)
	_, err = Memory(os.Getpid(), "VmNothing")
	require.ErrorIs(t, err, errNoField)

	child := exec.CommandContext(t.Context(), "sleep", "60")
	require.NoError(t, child.Start())
	assert.Contains(t, Children(os.Getpid()), child.Process.Pid)
	require.NoError(t, child.Process.Kill())
	_ = child.Wait()
	assert.NotContains(t, Children(os.Getpid()), child.Process.Pid)
	_, err = Memory(child.Process.Pid, Resident)
	require.ErrorIs(t, err, os.ErrNotExist)
}
