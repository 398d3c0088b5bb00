package dashboards

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"github.com/stretchr/testify/require"

	"github.com/retryledger/retryledger/internal/storetest"
	"github.com/retryledger/retryledger/schema"
)

// breakerHistory is what breakers did: of a provider with a plain name, and of those with
// odd ones. The first one's story begins before every range that tests look at.
func breakerHistory() []schema.BreakerTransition {
	at := func(minutes int) time.Time { return storetest.Day.Add(time.Duration(minutes) * time.Minute) }
	list := []schema.BreakerTransition{
		{At: at(-90), Provider: "openai", From: "closed", To: "open", Why: "30 of 120 requests in 30s ended in a server error", Requests: 120, ServerErrors: 30},
		{At: at(-80), Provider: "openai", From: "open", To: "half_open", Why: "the cool-down of 10s is over"},
		{At: at(30), Provider: "openai", From: "half_open", To: "open", Why: "1 of 1 probes failed", Requests: 1, ServerErrors: 1},
		{At: at(50), Provider: "openai", From: "open", To: "half_open", Why: "the cool-down of 20s is over"},
		{At: at(51), Provider: "openai", From: "half_open", To: "closed", Why: "5 probes succeeded", Requests: 5},
		{At: at(60), Provider: "anthropic", From: "closed", To: "open", Why: "20 of 40 requests in 30s ended in a server error; 4 were throttled", Requests: 40, ServerErrors: 20, Throttled: 4},
		{At: at(24 * 60), Provider: "openai", From: "closed", To: "open", Why: "after every range"},
	}
	for _, name := range odd["provider"] {
		list = append(list, schema.BreakerTransition{At: at(10), Provider: strings.ReplaceAll(name, notStated, ""), From: "closed", To: "open", Why: name, Requests: 20, ServerErrors: 10})
	}
	return list
}

// insertHistory writes what breakers did, twice, as two collectors on one store do.
func insertHistory(t testing.TB, conn driver.Conn) {
	t.Helper()
	ctx := context.Background()
	for _, writer := range []string{"one", "other"} {
		breakers := breakerHistory()
		for i := range breakers {
			breakers[i].Writer = writer
		}
		require.NoError(t, schema.InsertBreakerTransitions(ctx, conn, breakers))
	}
}
