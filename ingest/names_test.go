package ingest

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/retryledger/retryledger/ingest/dialect"
	"github.com/retryledger/retryledger/schema"
)

func stepRow(service, step string) schema.Span {
	s := schema.Span{Service: service, Step: step, Name: "work"}
	s.ContentHash = s.Hash()
	return s
}

// A service that invents step names fills its bucket and nobody else's, and the names
// that are in use stay.
func TestNamesAreBoundedByService(t *testing.T) {
	k := newNameBound(100)
	at := int64(1_700_000_000_000_000_000)
	keep := func(service, step string) string {
		rows := []schema.Span{stepRow(service, step)}
		n, of := k.bound(rows, at)
		if n > 0 {
			assert.Equal(t, service, of)
			assert.Equal(t, rows[0].Hash(), rows[0].ContentHash)
		}
		return rows[0].Step
	}
	assert.Equal(t, "resolve", keep("noisy", "resolve"))
	for hour := range 5 {
		kept := 0
		for i := range 100_000 {
			if keep("noisy", fmt.Sprintf("step-%d-%d", hour, i)) != otherName {
				kept++
			}
		}
		assert.LessOrEqual(t, kept, 100)
		assert.Equal(t, "resolve", keep("noisy", "resolve"), "a name in use stays")
		assert.Equal(t, "rank", keep("calm", "rank"))
		assert.Empty(t, keep("calm", ""))
		require.LessOrEqual(t, len(k.current)+len(k.previous), 2*2*100+4)
		at += int64(namesKept)
	}
	for i := range 100_000 { // as many services
		keep(fmt.Sprint("service-", i), "step")
	}
	require.LessOrEqual(t, len(k.current), manyServices*100)
	assert.Equal(t, "resolve", keep("noisy", "resolve"))
}

// What the bucket holds keeps apart what was apart: other names are other items.
func TestTheBucketKeepsItemsApart(t *testing.T) {
	k := newNameBound(1)
	rows := []schema.Span{
		stepRow("a", "first"), stepRow("a", "x"), stepRow("a", "y"), stepRow("a", "x"),
		{Service: "a", Node: "z", Name: "z", Violations: []schema.Violation{{Node: "z", Key: "k"}}, UnfinishedSteps: []string{"first", "z"}},
	}
	n, _ := k.bound(rows, 1)
	assert.Equal(t, 4, n)
	assert.Equal(t, "first", rows[0].Step)
	assert.Zero(t, rows[0].ItemHash)
	assert.Equal(t, otherName, rows[1].Step)
	assert.NotEqual(t, rows[1].ItemHash, rows[2].ItemHash)
	assert.Equal(t, rows[1].ItemHash, rows[3].ItemHash)
	assert.Equal(t, otherName, rows[4].Node)
	assert.Equal(t, rows[4].Node, rows[4].Name, "a node's own run is told by its name")
	assert.Equal(t, otherName, rows[4].Violations[0].Node)
	assert.Equal(t, []string{"first", otherName}, rows[4].UnfinishedSteps)
}

// A million names of steps, with ids and without, are a thousand in what is stored and in
// what is remembered of them.
func TestAMillionStepNames(t *testing.T) {
	k := newNameBound(defaultConfig().MaxStepNames)
	steps := map[string]int{}
	const withIDs, words, at = 100_000, 900_000, 1_700_000_000_000_000_000
	for first := 0; first < withIDs; first += 10_000 {
		td := request(first, make([]string, 10_000)...)
		i := first
		for _, rs := range td.ResourceSpans().All() {
			for _, ss := range rs.ScopeSpans().All() {
				for _, span := range ss.Spans().All() {
					span.SetTraceID(pcommon.TraceID{1})
					span.Attributes().PutStr("step", fmt.Sprintf("fetch %08x-e89b-12d3-a456-426614174000", i))
					i++
				}
			}
		}
		n := normaliseContained(dialect.Normalise, td, at)
		require.Len(t, n.spans, 10_000)
		k.bound(n.spans, at)
		for j := range n.spans {
			steps[n.spans[j].Step]++
		}
	}
	row := []schema.Span{{Service: "service-a"}}
	for i := range words {
		row[0].Step = fmt.Sprintf("fetch page%dx", i)
		k.bound(row, at)
		steps[row[0].Step]++
	}
	assert.Len(t, steps, 1000+1)
	assert.Equal(t, withIDs, steps["fetch {id}"])
	assert.Equal(t, words-999, steps[otherName])
	assert.LessOrEqual(t, len(k.current), 1000)
}
