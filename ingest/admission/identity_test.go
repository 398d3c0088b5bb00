package admission

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/open-telemetry/opentelemetry-collector-contrib/extension/basicauthextension"
	"github.com/open-telemetry/opentelemetry-collector-contrib/extension/bearertokenauthextension"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/extension"
	"go.opentelemetry.io/collector/extension/extensionauth"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"
	"go.opentelemetry.io/collector/receiver/otlpreceiver"
	"go.opentelemetry.io/collector/receiver/receivertest"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/retryledger/retryledger/internal/porttest"
)

// authenticator starts an authentication extension as the collector does.
func authenticator(t *testing.T, factory extension.Factory, config map[string]any) (extension.Extension, *componenttest.Telemetry, *observer.ObservedLogs) {
	t.Helper()
	telemetry := componenttest.NewTelemetry()
	t.Cleanup(func() { require.NoError(t, telemetry.Shutdown(context.Background())) })
	core, logs := observer.New(zap.WarnLevel)
	settings := extension.Settings{ID: component.NewID(factory.Type()), TelemetrySettings: telemetry.NewTelemetrySettings()}
	settings.Logger = zap.New(core)
	of := TellRefusals(factory)
	cfg := of.CreateDefaultConfig()
	require.NoError(t, confmap.NewFromStringMap(config).Unmarshal(cfg))
	e, err := of.Create(t.Context(), settings, cfg)
	require.NoError(t, err)
	require.NoError(t, e.Start(t.Context(), componenttest.NewNopHost()))
	t.Cleanup(func() { require.NoError(t, e.Shutdown(context.Background())) })
	return e, telemetry, logs
}

// Whoever shows no token, or another one, is refused, counted and told, over gRPC and
// HTTP, and the token is nowhere in the log.
func TestWhoIsNotKnownIsCounted(t *testing.T) {
	e, telemetry, logs := authenticator(t, bearertokenauthextension.NewFactory(), map[string]any{"token": "a-token"})
	ports := porttest.Free(t, 2)
	factory := otlpreceiver.NewFactory()
	cfg := factory.CreateDefaultConfig()
	use := map[string]any{"authenticator": "bearertokenauth"}
	require.NoError(t, confmap.NewFromStringMap(map[string]any{"protocols": map[string]any{
		"grpc": map[string]any{"endpoint": ports[0], "auth": use}, "http": map[string]any{"endpoint": ports[1], "auth": use},
	}}).Unmarshal(cfg))
	receiver, err := factory.CreateTraces(t.Context(), receivertest.NewNopSettings(component.MustNewType("otlp")), cfg, consumertest.NewNop())
	require.NoError(t, err)
	require.NoError(t, receiver.Start(t.Context(), hostOf{component.MustNewID("bearertokenauth"): e}))
	defer func() { require.NoError(t, receiver.Shutdown(context.Background())) }()

	request := ptraceotlp.NewExportRequestFromTraces(ptrace.NewTraces())
	body, err := request.MarshalProto()
	require.NoError(t, err)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	post := func(authorization string) int {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+ports[1]+"/v1/traces", bytes.NewReader(body))
		require.NoError(t, err)
		r.Header.Set("Content-Type", "application/x-protobuf")
		if authorization != "" {
			r.Header.Set("Authorization", authorization)
		}
		answer, err := client.Do(r)
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		return answer.StatusCode
	}
	conn, err := grpc.NewClient(ports[0], grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close()) }()
	call := func(authorization string) codes.Code {
		ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", authorization)
		_, err := ptraceotlp.NewGRPCClient(conn).Export(ctx, request)
		return status.Code(err)
	}
	assert.Equal(t, http.StatusOK, post("Bearer a-token"))
	assert.Equal(t, codes.OK, call("Bearer a-token"))
	_, err = telemetry.GetMetric("retryledger_admission_requests_unauthenticated")
	require.Error(t, err, "nobody was refused")
	assert.Equal(t, http.StatusUnauthorized, post(""))
	assert.Equal(t, http.StatusUnauthorized, post("Bearer s3cret"))
	assert.Equal(t, codes.Unauthenticated, call("Bearer s3cret"))
	metric, err := telemetry.GetMetric("retryledger_admission_requests_unauthenticated")
	require.NoError(t, err)
	var turned int64
	for _, n := range sumOf(t, metric) {
		turned += n
	}
	assert.EqualValues(t, 3, turned)
	require.Equal(t, 1, logs.Len(), "a flood is one line now and then")
	for _, entry := range logs.All() {
		for _, value := range entry.ContextMap() {
			assert.NotContains(t, fmt.Sprint(value), "s3cret")
			assert.NotContains(t, fmt.Sprint(value), "a-token")
		}
	}
}

func TestAnAuthenticatorStaysWhatItIs(t *testing.T) {
	both, _, _ := authenticator(t, bearertokenauthextension.NewFactory(), map[string]any{"token": "a-token"})
	assert.Implements(t, (*extensionauth.Server)(nil), both)
	assert.Implements(t, (*extensionauth.HTTPClient)(nil), both)
	assert.Implements(t, (*extensionauth.GRPCClient)(nil), both)

	server, telemetry, _ := authenticator(t, basicauthextension.NewFactory(), map[string]any{"htpasswd": map[string]any{"inline": "ada:lovelace"}})
	asks, ok := server.(extensionauth.Server)
	require.True(t, ok)
	assert.NotImplements(t, (*extensionauth.HTTPClient)(nil), server)
	_, err := asks.Authenticate(t.Context(), map[string][]string{"authorization": {"Basic YWRhOmxvdmVsYWNl"}})
	require.NoError(t, err)
	_, err = asks.Authenticate(t.Context(), map[string][]string{"authorization": {"Basic YWRhOm5v"}})
	require.Error(t, err)
	_, err = telemetry.GetMetric("retryledger_admission_requests_unauthenticated")
	require.NoError(t, err)

	client, _, _ := authenticator(t, basicauthextension.NewFactory(), map[string]any{"client_auth": map[string]any{"username": "ada", "password": "lovelace"}})
	assert.NotImplements(t, (*extensionauth.Server)(nil), client)
	assert.Implements(t, (*extensionauth.HTTPClient)(nil), client)
}

// A wrong token now and then is told each time, with those that were not.
func TestRefusalsAreToldNowAndThen(t *testing.T) {
	e, _, logs := authenticator(t, basicauthextension.NewFactory(), map[string]any{"htpasswd": map[string]any{"inline": "ada:lovelace"}})
	d, ok := e.(*doorkeeper)
	require.True(t, ok)
	c := &clock{start}
	d.now = c.now
	for range 5 {
		_, err := d.Authenticate(t.Context(), nil)
		require.Error(t, err)
		c.at = c.at.Add(4 * time.Second)
	}
	require.Equal(t, 2, logs.Len())
	assert.EqualValues(t, 3, logs.All()[1].ContextMap()["requests"])
}
