package porttest

import (
	"net"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestFreePortsAreGivenOnce(t *testing.T) {
	seen := map[string]bool{}
	for range 20 {
		for _, address := range Free(t, 5) {
			assert.False(t, seen[address], address)
			seen[address] = true
			l, err := net.Listen("tcp", address)
			require.NoError(t, err)
			require.NoError(t, l.Close())
		}
	}
}

func TestAClaimEndsWithItsFile(t *testing.T) {
	path := t.TempDir() + "/port"
	claim, err := lock(path)
	require.NoError(t, err)
	require.NotNil(t, claim)
	other, err := lock(path)
	require.NoError(t, err)
	require.Nil(t, other)
	require.NoError(t, claim.Close())
	claim, err = lock(path)
	require.NoError(t, err)
	require.NotNil(t, claim)
	require.NoError(t, claim.Close())
}
