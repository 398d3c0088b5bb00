package query_test

import (
	"flag"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	flag.Parse()
	// Each draw asks the engine several times; more draws are a flag away.
	if set := flag.Lookup("rapid.checks"); set != nil && set.Value.String() == set.DefValue {
		_ = set.Value.Set("25")
	}
	goleak.VerifyTestMain(m)
}
