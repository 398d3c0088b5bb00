package ledger_test

import (
	"bytes"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/retryledger/retryledger/analysis/attribution"
	"github.com/retryledger/retryledger/analysis/ledger"
	"github.com/retryledger/retryledger/internal/engine/enginetest"
	"github.com/retryledger/retryledger/schema"
)

// fill draws a value for every field, so that a field that is added to the
// account and forgotten in the store fails this test.
func fill(t *rapid.T, v reflect.Value, label string) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			fill(t, v.Field(i), label+"."+v.Type().Field(i).Name)
		}
	case reflect.Slice:
		n := rapid.IntRange(0, 3).Draw(t, label+" length")
		v.Set(reflect.MakeSlice(v.Type(), n, n))
		for i := range n {
			fill(t, v.Index(i), fmt.Sprintf("%s[%d]", label, i))
		}
	case reflect.Array: // ids
	case reflect.Pointer:
		if rapid.Bool().Draw(t, label+" known") {
			v.Set(reflect.New(v.Type().Elem()))
			fill(t, v.Elem(), label)
		}
	case reflect.String:
		v.SetString(rapid.StringN(0, 5, 20).Draw(t, label))
	case reflect.Bool:
		v.SetBool(rapid.Bool().Draw(t, label))
	case reflect.Int, reflect.Int64, reflect.Int32:
		v.SetInt(int64(rapid.Int32Range(-1, math.MaxInt32).Draw(t, label)))
	case reflect.Float64:
		v.SetFloat(rapid.OneOf(rapid.Float64(), rapid.Just(math.NaN())).Draw(t, label))
	default:
		t.Fatalf("%s: a field of type %s is new here", label, v.Type())
	}
}

// drawnAccount is an account over n traces in which every field says something
// and only what ties its parts together is as attribution has it.
func drawnAccount(t *rapid.T, n int) (attribution.Ledger, []schema.LedgerRow) {
	var account attribution.Ledger
	fill(t, reflect.ValueOf(&account).Elem(), "account")
	rows := make([]schema.LedgerRow, n)
	for i := range rows {
		id := rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "trace id")
		copy(rows[i].TraceID[:], id)
		rows[i].TraceID[0] = byte(i)
		rows[i].Spans = 1 << 30
		rows[i].LastReceivedNs = time.Now().UnixNano()
		rows[i].Version = schema.LedgerVersion{InsertedUs: 7, Spans: 3, JudgedS: 1}
	}
	account.UnattributedSpans = max(account.UnattributedSpans%1000, 0)
	one := func(ids []schema.TraceID) schema.TraceID { return rapid.SampledFrom(ids).Draw(t, "trace of run") }
	all := make([]schema.TraceID, n)
	for i := range rows {
		all[i] = rows[i].TraceID
	}
	for i := range account.ContractViolations {
		account.ContractViolations[i].TraceID = one(all)
	}
	for i := range account.Runs {
		r := &account.Runs[i]
		r.RunID = fmt.Sprint("run-", i)
		first := rapid.IntRange(0, n-1).Draw(t, "first trace")
		own := all[first:rapid.IntRange(first+1, n).Draw(t, "last trace")]
		r.TraceIDs = nil
		for _, id := range own {
			r.TraceIDs = append(r.TraceIDs, id.String())
		}
		for j := range r.ContractViolations {
			r.ContractViolations[j].TraceID = one(own)
		}
		for j := range r.Operations {
			r.Operations[j].TraceID = one(own)
		}
		for j := range r.Attempts {
			a := &r.Attempts[j]
			a.TraceID = one(own)
			a.Parent = rapid.IntRange(-1, j-1).Draw(t, "parent")
			a.ViewOf = rapid.IntRange(-1, len(r.Attempts)-1).Draw(t, "view of")
			a.Operation = rapid.IntRange(-1, len(r.Operations)-1).Draw(t, "operation")
		}
	}
	return account, rows
}

// plain takes out what no comparison can see: NaN equals nothing, and an
// empty slice is as good as none.
func plain(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			plain(v.Elem())
		}
	case reflect.Struct:
		for i := range v.NumField() {
			plain(v.Field(i))
		}
	case reflect.Slice:
		for i := range v.Len() {
			plain(v.Index(i))
		}
		if v.Len() == 0 {
			v.SetZero()
		}
	case reflect.Float64:
		if math.IsNaN(v.Float()) {
			v.SetFloat(-0.12345)
		}
	}
}

func sameRuns(t require.TestingT, want, got []attribution.Run) {
	for _, runs := range []*[]attribution.Run{&want, &got} {
		*runs = slices.SortedFunc(slices.Values(*runs), func(a, b attribution.Run) int { return strings.Compare(a.RunID, b.RunID) })
		plain(reflect.ValueOf(runs).Elem())
	}
	require.Equal(t, want, got)
}

func TestRowsAndBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		account, traces := drawnAccount(t, rapid.IntRange(1, 4).Draw(t, "traces"))
		rows, err := ledger.Rows(account, traces)
		require.NoError(t, err)
		sameRuns(t, account.Runs, ledger.Runs(rows))
		unattributed, violations := 0, 0
		for _, r := range rows {
			unattributed += int(r.UnattributedSpans)
			for _, v := range r.Violations {
				if v.Run < 0 {
					violations++
				}
			}
		}
		require.Equal(t, account.UnattributedSpans, unattributed)
		require.Equal(t, len(account.ContractViolations), violations)
	})
}

func TestThroughTheStoreAndBack(t *testing.T) {
	db := enginetest.Database(t)
	require.NoError(t, schema.Migrate(t.Context(), db.Conn, schema.MigrateOptions{}))
	type drawn struct {
		account attribution.Ledger
		traces  []schema.LedgerRow
	}
	draw := rapid.Custom(func(t *rapid.T) (d drawn) {
		d.account, d.traces = drawnAccount(t, rapid.IntRange(1, 4).Draw(t, "traces"))
		return d
	})
	for i := range 25 {
		require.NoError(t, db.Conn.Exec(t.Context(), "TRUNCATE TABLE ledger"))
		d := draw.Example(i)
		account, traces := d.account, d.traces
		rows, err := ledger.Rows(account, traces)
		require.NoError(t, err)
		require.NoError(t, schema.InsertLedger(t.Context(), db.Conn, rows))
		ids := make([]schema.TraceID, len(rows))
		for i := range rows {
			ids[i] = rows[i].TraceID
		}
		kept, err := schema.LedgerOfTraces(t.Context(), db.Conn, ids)
		require.NoError(t, err)
		got := ledger.Runs(kept)
		sameRuns(t, account.Runs, got)
		slices.SortFunc(kept, func(a, b schema.LedgerRow) int { return bytes.Compare(a.TraceID[:], b.TraceID[:]) })
		slices.SortFunc(rows, func(a, b schema.LedgerRow) int { return bytes.Compare(a.TraceID[:], b.TraceID[:]) })
		plain(reflect.ValueOf(&kept).Elem())
		plain(reflect.ValueOf(&rows).Elem())
		require.Equal(t, rows, kept)
		for _, run := range account.Runs[:min(1, len(account.Runs))] {
			runs, err := ledger.Read(t.Context(), db.Conn, run.RunID)
			require.NoError(t, err)
			sameRuns(t, []attribution.Run{run}, runs)
		}
	}
}

func TestAccountOfForeignTraceIsRefused(t *testing.T) {
	_, err := ledger.Rows(attribution.Ledger{Runs: []attribution.Run{{RunID: "r", TraceIDs: []string{"0123456789abcdef0123456789abcdef"}}}}, nil)
	require.ErrorContains(t, err, "not read")
}
