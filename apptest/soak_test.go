//go:build linux

package apptest

import (
	"flag"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryledger/retryledger/internal/porttest"
)

var soakFor = flag.Duration("soak", 40*time.Second, "how long TestSoak lasts")

// mostParts is far above what merges leave of one table, and far below the 3,000 at which
// the engine refuses inserts. A table of whose parts nobody takes care has one more for
// each second.
const mostParts = 150

// TestSoak sends for a long time and looks whether anything grows that should not.
func TestSoak(t *testing.T) {
	looks, err := soak(t.Context(), t.TempDir(), porttest.Free(t, 9), 1, *soakFor, *soakFor/8, t.Logf)
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(looks), 6)
	// What starts is up, and pools are filled, after a quarter.
	settled, last := looks[2], looks[len(looks)-1]
	for name, files := range last.Files {
		assert.LessOrEqual(t, files, settled.Files[name]+settled.Files[name]/4+32, "open files of the %s", name)
	}
	for _, l := range looks {
		assert.Less(t, l.Parts, mostParts, "%v", l.MostParts)
	}
	if *soakFor < 10*time.Minute {
		return // memory says nothing yet: the runtime keeps what the first crowd took
	}
	for name, before := range settled.Memory {
		if name == "engine" {
			continue // it has a limit, and uses it for caches
		}
		assert.Less(t, last.Memory[name], before+before/4+32<<20, "memory of the %s", name)
	}
}
