package attribution_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
)

// The worst case of the limits is their product, wherever and for whatever layer
// spans state them.
func TestLimitsMultiply(t *testing.T) {
	chat := func(id, parent int, more attrs) sent {
		a := attrs{"gen_ai.operation.name": "chat", "gen_ai.request.model": "m"}
		for k, v := range more {
			a[k] = v
		}
		return sent{id: id, parent: parent, name: "chat m", from: 10, to: 20, client: true, attrs: a}
	}
	step := func(more attrs) []sent {
		a := attrs{"step": "ask"}
		for k, v := range more {
			a[k] = v
		}
		return []sent{{id: 0, parent: -1, name: "job", to: 1000}, {id: 1, parent: 0, name: "ask", from: 1, to: 900, attrs: a}}
	}
	for name, c := range map[string]struct {
		spans []sent
		want  int
	}{
		"nothing stated": {append(step(nil), chat(2, 1, nil)), 0},
		"a step's":       {append(step(attrs{"retry.max_attempts": 3}), chat(2, 1, nil)), 3},
		"a call's":       {append(step(nil), chat(2, 1, attrs{"retry.max_attempts": 4})), 4},
		"a call's, in a wrapper around it": {append(step(nil), sent{id: 2, parent: 1, name: "with_retry", from: 5, to: 50, attrs: attrs{"retry.max_attempts": 4}},
			chat(3, 2, nil)), 4},
		"the wrapper's and its attempts' are one": {append(step(nil), sent{id: 2, parent: 1, name: "with_retry", from: 5, to: 50, attrs: attrs{"retry.max_attempts": 4}},
			chat(3, 2, attrs{"retry.max_attempts": 4})), 4},
		"a client's": {append(step(nil), chat(2, 1, nil),
			sent{id: 3, parent: 2, name: "POST", from: 11, to: 19, client: true, attrs: attrs{"http.request.method": "POST", "retry.max_attempts": 5}}), 5},
		"all three": {append(step(attrs{"retry.max_attempts": 3}), chat(2, 1, attrs{"retry.max_attempts": 4}),
			sent{id: 3, parent: 2, name: "POST", from: 11, to: 19, client: true, attrs: attrs{"http.request.method": "POST", "retry.max_attempts": 5}}), 60},
		"the AI SDK's retries are one less": {append(step(attrs{"retry.max_attempts": 3}),
			sent{id: 2, parent: 1, name: "ai.generateText", scope: "ai", from: 5, to: 50, attrs: attrs{"ai.operationId": "ai.generateText", "ai.settings.maxRetries": 2, "operation.name": "ai.generateText"}},
			sent{id: 3, parent: 2, name: "ai.generateText.doGenerate", scope: "ai", from: 6, to: 49, attrs: attrs{"ai.operationId": "ai.generateText.doGenerate", "ai.model.id": "m", "ai.settings.maxRetries": 2}}), 9},
		"layers that repeat the step": {append(append(step(attrs{"retry.max_attempts": 3}), chat(2, 1, nil)),
			sent{id: 4, parent: 0, name: "ask", from: 910, to: 920, attrs: attrs{"step": "ask", "retry.layer": "orchestrator", "retry.max_attempts": 2}}), 6},
		"no count of attempts": {append(step(attrs{"retry.max_attempts": math.MaxInt32}), chat(2, 1, attrs{"retry.max_attempts": math.MaxInt32})), math.MaxInt32},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, c.want, theStep(t, runOf(t, scopeApp, c.spans...), "ask").WorstCase)
		})
	}
}
