package dialect

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

func TestSampledByItsTracestate(t *testing.T) {
	for state, want := range map[string]bool{
		"":                      false,
		"ot=th:0":               false, // nothing is dropped
		"ot=th:000":             false,
		"ot=th:c":               true, // one in four is kept
		"ot=th:fd70a4;rv:1234":  true,
		"ot=rv:1234;th:8":       true,
		"ot=rv:1234":            false, // randomness alone says nothing
		"ot=th:":                false,
		"ot=th:xyz":             false,
		"ot=th:123456789abcdef": false, // fifteen digits
		"ot=p:0":                false,
		"ot=p:3;r:20":           true,
		"ot=p:63":               true,
		"ot=p:64":               false,
		"ot=p:-1":               false,
		"es=s:1":                false,
		"es=s:0.25":             true,
		"es=s:x":                false,
		"vendor=th:c":           false,
		"a=b, ot=th:8 ,c=d":     true,
		"th:c":                  false,
		",,=;:":                 false,
	} {
		assert.Equal(t, want, read(t, nil, func(s ptrace.Span) { s.TraceState().FromRaw(state) }).Sampled, "%q", state)
	}
}

func TestSampledByAnAttribute(t *testing.T) {
	for _, test := range []struct {
		attrs map[string]any
		want  bool
	}{
		{map[string]any{"sampling.probability": 0.1}, true},
		{map[string]any{"sampling.probability": "0.5"}, true},
		{map[string]any{"sampling.probability": 1.0}, false},
		{map[string]any{"sampling.probability": 0}, false}, // nobody samples nothing
		{map[string]any{"sampling.rate": 20}, true},
		{map[string]any{"sampling.ratio": 0.2}, true},
		{map[string]any{"sampling.priority": 1}, false},
		{map[string]any{"sampling.policy": "errors"}, true},
		{map[string]any{"sampling.policy": ""}, false},
		{map[string]any{"SampleRate": 10}, true},
		{map[string]any{"SampleRate": 1}, false},
		{map[string]any{"logfire.sample_rate": 0.3}, true},
		{map[string]any{"_MS.sampleRate": 25.0}, true},
		{map[string]any{"_MS.sampleRate": 100.0}, false},
		{map[string]any{"sampler.type": "probabilistic", "sampler.param": 0.001}, true},
		{map[string]any{"sampler.type": "probabilistic", "sampler.param": 1}, false},
		{map[string]any{"sampler.type": "const", "sampler.param": 0.5}, false},
		{map[string]any{"sampler.type": "ratelimiting", "sampler.param": 5}, true},
		{map[string]any{"step": "resolve"}, false},
	} {
		assert.Equal(t, test.want, read(t, test.attrs).Sampled, "%v", test.attrs)

		// The same of the scope, where the tail sampler of Collectors writes, and of the resource.
		td := ptrace.NewTraces()
		for i, edit := range []func(ptrace.ResourceSpans, ptrace.ScopeSpans) error{
			func(_ ptrace.ResourceSpans, ss ptrace.ScopeSpans) error {
				return ss.Scope().Attributes().FromRaw(test.attrs)
			},
			func(rs ptrace.ResourceSpans, _ ptrace.ScopeSpans) error {
				return rs.Resource().Attributes().FromRaw(test.attrs)
			},
			func(ptrace.ResourceSpans, ptrace.ScopeSpans) error { return nil },
		} {
			rs := td.ResourceSpans().AppendEmpty()
			ss := rs.ScopeSpans().AppendEmpty()
			require.NoError(t, edit(rs, ss))
			span := ss.Spans().AppendEmpty()
			span.SetTraceID([16]byte{1})
			span.SetSpanID([8]byte{byte(i + 1)})
		}
		rows, _ := Normalise(td, 7)
		require.Len(t, rows, 3)
		assert.Equal(t, []bool{test.want, test.want, false}, []bool{rows[0].Sampled, rows[1].Sampled, rows[2].Sampled}, "%v", test.attrs)
	}
}
