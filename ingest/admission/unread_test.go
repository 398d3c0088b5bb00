package admission

import (
	"bytes"
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"
	"go.opentelemetry.io/collector/receiver/otlpreceiver"
	"go.opentelemetry.io/collector/receiver/receivertest"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/retryledger/retryledger/internal/porttest"
	"github.com/retryledger/retryledger/internal/seldom"
)

type hostOf map[component.ID]component.Component

func (h hostOf) GetExtensions() map[component.ID]component.Component { return h }

// A message above the receiver's limit, and one that is no request at all, are counted
// and told by their reason, each reason once in a while; nothing else is.
func TestMessagesThatCannotBeReadAreCounted(t *testing.T) {
	m, logs, telemetry, c := made(t, 10)
	ports := porttest.Free(t, 2)
	factory := otlpreceiver.NewFactory()
	cfg := factory.CreateDefaultConfig()
	use := []any{map[string]any{"id": "retryledger_admission"}}
	require.NoError(t, confmap.NewFromStringMap(map[string]any{"protocols": map[string]any{
		"grpc": map[string]any{"endpoint": ports[0], "max_recv_msg_size_mib": 1, "middlewares": use},
		"http": map[string]any{"endpoint": ports[1], "max_request_body_size": 1 << 20, "middlewares": use},
	}}).Unmarshal(cfg))
	receiver, err := factory.CreateTraces(t.Context(), receivertest.NewNopSettings(component.MustNewType("otlp")), cfg, consumertest.NewNop())
	require.NoError(t, err)
	require.NoError(t, receiver.Start(t.Context(), hostOf{component.MustNewID("retryledger_admission"): m}))
	defer func() { require.NoError(t, receiver.Shutdown(context.Background())) }()

	request := func(size int) ptraceotlp.ExportRequest {
		td := ptrace.NewTraces()
		td.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty().Spans().AppendEmpty().Attributes().PutStr("input.value", strings.Repeat("p", size))
		return ptraceotlp.NewExportRequestFromTraces(td)
	}
	conn, err := grpc.NewClient(ports[0], grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close()) }()
	// A client that keeps its connection, as senders do, hears the answer while it is still
	// writing. From one that asks the server to close it, net/http does not wait for that.
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	post := func(body []byte) int {
		answer, err := client.Post("http://"+ports[1]+"/v1/traces", "application/x-protobuf", bytes.NewReader(body))
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		return answer.StatusCode
	}
	for range 2 {
		_, err = ptraceotlp.NewGRPCClient(conn).Export(t.Context(), request(10))
		require.NoError(t, err)
		_, err = ptraceotlp.NewGRPCClient(conn).Export(t.Context(), request(2<<20))
		require.Equal(t, codes.ResourceExhausted, status.Code(err))
		small, err := request(10).MarshalProto()
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, post(small))
		large, err := request(50 << 20).MarshalProto()
		require.NoError(t, err)
		require.Equal(t, http.StatusBadRequest, post(large))
		require.Equal(t, http.StatusBadRequest, post([]byte("no request")))
	}
	var counted map[string]int64
	require.Eventually(t, func() bool { // a call's end is told when its answer is on the way
		counted = unreadBy(t, telemetry)
		return counted["too_large"] == 2 && counted["malformed"] == 4
	}, seldom.Every, seldom.Every/1000, "%v", counted)
	assert.Equal(t, 2, logs.FilterMessageSnippet("could not be read").Len(), "each reason once")
	c.at = c.at.Add(seldom.Every)
	require.Equal(t, http.StatusBadRequest, post([]byte("no request")))
	assert.Equal(t, 3, logs.FilterMessageSnippet("could not be read").Len())
}
