// Package porttest finds addresses for the servers of tests.
package porttest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// Ports below those that a kernel gives to whoever asks for any (Linux: from 32768, macOS:
// from 49152): such a port may go to another program's outgoing connection between the
// moment it is found and the moment that the server under test listens on it.
const (
	lowest  = 20000
	highest = 32767
)

// Free are n addresses on loopback that nothing listens on and that no other test of
// this user is given, in this process or another, until this test has ended.
func Free(t testing.TB, n int) []string {
	t.Helper()
	folder := filepath.Join(os.TempDir(), fmt.Sprintf("retryledger-test-ports-%d", os.Getuid()))
	require.NoError(t, os.MkdirAll(folder, 0o700))
	var addresses []string
	for _, offset := range rand.Perm(highest - lowest + 1) { //nolint:gosec // no secret
		if len(addresses) == n {
			break
		}
		port := strconv.Itoa(lowest + offset)
		claim, err := lock(filepath.Join(folder, port))
		require.NoError(t, err)
		if claim == nil {
			continue
		}
		address := net.JoinHostPort("127.0.0.1", port)
		listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", address)
		if err != nil { // another program's
			require.NoError(t, claim.Close())
			continue
		}
		require.NoError(t, listener.Close())
		t.Cleanup(func() { _ = claim.Close() })
		addresses = append(addresses, address)
	}
	require.Len(t, addresses, n, "free ports from %d to %d", lowest, highest)
	return addresses
}

// lock takes the file for as long as it stays open, nil if somebody else has it. The file
// stays: removing it would let two tests lock two files of one name.
func lock(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("claim a port: %w", err)
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err == nil {
		return f, nil
	}
	closed := f.Close()
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, closed
	}
	return nil, fmt.Errorf("claim a port: lock %s: %w", path, errors.Join(err, closed))
}
