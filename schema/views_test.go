package schema

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Each column of each view, alone and all together, is the same through Narrow.
func TestNarrowSaysWhatTheViewSays(t *testing.T) {
	db := migrated(t)
	row := ledgerRow(1, noon, 3)
	row.Operations = []OperationRow{{Run: 1, Index: 4, Step: "resolve", Limit: 3, EndNs: noon}}
	row.Violations = []ViolationRow{{Run: -1, Node: "rank", Key: "k", Direction: "input", Count: 2, TimeNs: noon}, {Run: 1, Node: "rank"}}
	require.NoError(t, InsertLedger(t.Context(), db.Conn, []LedgerRow{row, ledgerRow(2, noon, 1)}))
	hash := func(from string, columns []string) (hash uint64) {
		list := make([]string, len(columns))
		for i, c := range columns {
			list[i] = quoted(c)
		}
		query := fmt.Sprintf("SELECT groupBitXor(cityHash64(toString(tuple(%s)))) + count() FROM %s", strings.Join(list, ", "), from)
		require.NoError(t, db.Conn.QueryRow(t.Context(), query).Scan(&hash), query)
		return hash
	}
	for name, v := range views() {
		var all []string
		for column := range v.columns {
			all = append(all, column)
			assert.Equal(t, hash(name, []string{column}), hash(Narrow(name, column), []string{column}), "%s.%s", name, column)
		}
		assert.NotZero(t, hash(name, all), name)
		assert.Equal(t, hash(name, all), hash(Narrow(name, all...), all), name)
	}
	assert.Len(t, views(), 5)
}

func TestNarrowReadsNoMore(t *testing.T) {
	assert.Equal(t,
		"(SELECT step AS `step`, `runs.run_id`[run_index + 1] AS `run_id` FROM ledger FINAL ARRAY JOIN `attempts.step` AS `step`, `attempts.run` AS `run_index`)",
		Narrow("attempts", "step", "run_id"))
	assert.Equal(t, "(SELECT last_end_ns AS `trace_end_ns` FROM ledger FINAL ARRAY JOIN `steps.run` AS `run_index`)", Narrow("steps", "trace_end_ns"))
	assert.Contains(t, Narrow("runs", "run_id"), "WHERE anchor")
	assert.Panics(t, func() { Narrow("attempts", "nothing") })
	assert.Panics(t, func() { Narrow("nothing") })
}
