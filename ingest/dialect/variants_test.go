package dialect

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/retryledger/retryledger/internal/capturetest"
	"github.com/retryledger/retryledger/internal/otlpfile"
	"github.com/retryledger/retryledger/schema"
)

// TestEverySpanOfThePlainVariants reads a capture whose eight calls state their attempt
// in eight ways, as a real SDK sends them, span by span. Every other one has an exception
// event and no status: an exception that was recorded, and not one that ended the span.
func TestEverySpanOfThePlainVariants(t *testing.T) {
	type stated struct {
		attempt, fallback, resends int32
		evidence                   string
		failed                     bool
	}
	want := map[string]stated{
		"call 0": {attempt: 2, evidence: "tag", fallback: -1, resends: -1},       // a JSON list as text
		"call 1": {attempt: 3, evidence: "tag", fallback: -1, resends: -1},       // a joined text
		"call 2": {attempt: 2, evidence: "attribute", fallback: -1, resends: -1}, // retry.attempt
		"call 3": {fallback: -1, resends: 1},                                     // http.request.resend_count is no ordinal
		"call 4": {attempt: 2, evidence: "tag", fallback: 1, resends: -1},        // an array, beside fallback: "true"
		"call 5": {attempt: 10, evidence: "tag", fallback: -1, resends: -1},      // two digits, beside a tag of the user's
		"call 6": {fallback: -1, resends: -1},                                    // no number
		"call 7": {fallback: -1, resends: -1},                                    // an empty array
		"run":    {fallback: -1, resends: -1},
	}
	got := make(map[string]stated)
	for _, capture := range capturetest.All(t) {
		if capture.Cell() != "plain/k2_plain_variants" {
			continue
		}
		for _, name := range capture.Files {
			file, err := os.Open(name)
			require.NoError(t, err)
			_, err = otlpfile.Read(file, 1<<20, func(td ptrace.Traces) error {
				rows, refused := Normalise(td, 1)
				assert.Zero(t, refused)
				for _, r := range rows {
					got[r.Name] = stated{r.Attempt, r.Fallback, r.ResendCount, r.AttemptEvidence, r.Failed}
					assert.Equal(t, map[bool]string{true: "resolve"}[r.Name != "run"], r.Step, r.Name)
					assert.Equal(t, schema.RoleOther, r.Role, r.Name)
				}
				return nil
			})
			require.NoError(t, err)
			require.NoError(t, file.Close())
		}
	}
	assert.Equal(t, want, got)
}
