//go:build !linux && !darwin

package enginetest

import (
	"errors"

	"github.com/ClickHouse/clickhouse-go/v2"
)

const keeperEnv = "RETRYLEDGER_ENGINETEST_KEEPER"

type state struct{}

func (state) options() *clickhouse.Options { return nil }
func keep(string) int                      { return 1 }
func shared() (state, error) {
	return state{}, errors.New("the embedded ClickHouse does not exist for this platform: set " + NoEngineEnv + "=1")
}
