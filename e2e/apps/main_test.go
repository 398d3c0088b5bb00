package apps

import (
	"testing"

	"github.com/retryledger/retryledger/internal/collectortest"
)

func TestMain(m *testing.M) { collectortest.Main(m) }
