package dialect

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/retryledger/retryledger/schema"
)

func TestIDsInNames(t *testing.T) {
	for name, want := range map[string]string{
		"resolve-123e4567-e89b-12d3-a456-426614174000":            "resolve-{id}",
		"123E4567-E89B-12D3-A456-426614174000":                    "{id}",
		"GET /runs/123e4567-e89b-12d3-a456-426614174000/steps/42": "GET /runs/{id}/steps/42",
		"task_550e8400e29b41d4a716446655440000":                   "task_{id}",
		"job 1764510000123 of 01ARZ3NDEKTSV4RRFFQ69G5FAV":         "job {id} of {id}",
		"résumé 1764510000":                                       "résumé {id}",

		"resolve":                             "resolve",
		"stage-2":                             "stage-2",
		"chat claude-3-5-sonnet-20241022":     "chat claude-3-5-sonnet-20241022",
		"chat gpt-4o-2024-08-06":              "chat gpt-4o-2024-08-06",
		"2026-11-30":                          "2026-11-30",
		"acceded effaced":                     "acceded effaced",
		"aaaaaaaaaaaaaaaaaaaaaaaa":            "aaaaaaaaaaaaaaaaaaaaaaaa",
		"123e4567-e89b-12d3-a456-42661417abc": "123e4567-e89b-12d3-a456-42661417abc", // a digit short
		"ChannelWrite<resolve,rank>":          "ChannelWrite<resolve,rank>",
		"THISISANORDINARYLONGWORDHERE":        "THISISANORDINARYLONGWORDHERE",
		"":                                    "",
	} {
		got, _ := withoutIDs(name)
		assert.Equal(t, want, got)
	}
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.StringMatching(`[a-z0-9 {}A-F/-]{0,80}`).Draw(t, "name")
		once, ids := withoutIDs(name)
		twice, _ := withoutIDs(once)
		require.Equal(t, once, twice)
		require.Equal(t, len(ids) == 0, once == name)
	})
}

// Steps that only their ids tell apart are one step that worked on several items; what
// says the same id worked on the same.
func TestAnIDInAStepsNameIsItsItem(t *testing.T) {
	const a, b = "resolve-123e4567-e89b-12d3-a456-426614174000", "resolve-123e4567-e89b-12d3-a456-426614174001"
	one, again, other := read(t, map[string]any{"step": a}), read(t, map[string]any{"step": a}), read(t, map[string]any{"step": b})
	assert.Equal(t, "resolve-{id}", one.Step)
	assert.Equal(t, one.Step, other.Step)
	assert.Equal(t, one.ItemHash, again.ItemHash)
	assert.NotEqual(t, one.ItemHash, other.ItemHash)
	assert.NotEqual(t, one.ItemHash, read(t, map[string]any{"step": a, "item.index": 2}).ItemHash)
	row := read(t, map[string]any{"step": "resolve", "contract.node": a, "contract.missing_input": "k", "run.unfinished_steps": []any{b}})
	assert.Equal(t, []schema.Violation{{Node: "resolve-{id}", Key: "k", Direction: "input"}}, row.Violations)
	assert.Equal(t, []string{"resolve-{id}"}, row.UnfinishedSteps)
	assert.Zero(t, row.ItemHash, "of whom a step tells is not what it worked on")
}
