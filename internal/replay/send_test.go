package replay_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/consumer/consumererror"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/receiver/otlpreceiver"
	"go.opentelemetry.io/collector/receiver/receivertest"

	"github.com/retryledger/retryledger/internal/capturetest"
	"github.com/retryledger/retryledger/internal/replay"
)

// receive starts the Collector's own OTLP receiver in front of next and returns its
// addresses.
func receive(t *testing.T, next consumer.Traces) (grpc, web string) {
	t.Helper()
	grpc, web = free(t), free(t)
	factory := otlpreceiver.NewFactory()
	config := factory.CreateDefaultConfig()
	require.NoError(t, confmap.NewFromStringMap(map[string]any{"protocols": map[string]any{
		"grpc": map[string]any{"endpoint": grpc}, "http": map[string]any{"endpoint": web},
	}}).Unmarshal(config))
	receiver, err := factory.CreateTraces(t.Context(), receivertest.NewNopSettings(component.MustNewType("otlp")), config, next)
	require.NoError(t, err)
	require.NoError(t, receiver.Start(t.Context(), componenttest.NewNopHost()))
	t.Cleanup(func() { require.NoError(t, receiver.Shutdown(context.Background())) })
	return grpc, web
}

func free(t *testing.T) string {
	t.Helper()
	var listen net.ListenConfig
	listener, err := listen.Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { require.NoError(t, listener.Close()) }()
	return listener.Addr().String()
}

// senders are all ways to send, to one receiver.
func senders(t *testing.T, grpc, web string) map[string]replay.Sender {
	t.Helper()
	all := map[string]replay.Sender{}
	add := func(name string, sender replay.Sender, err error) {
		require.NoError(t, err)
		all[name] = sender
		t.Cleanup(func() { require.NoError(t, sender.Close()) })
	}
	for _, zip := range []bool{false, true} {
		suffix := map[bool]string{true: " with gzip"}[zip]
		sender, err := replay.NewGRPC(grpc, zip, replay.Access{})
		add("gRPC"+suffix, sender, err)
		sender, err = replay.NewHTTP("http://"+web, replay.Protobuf, zip, replay.Access{})
		add("HTTP protobuf"+suffix, sender, err)
		sender, err = replay.NewHTTP(web+"/v1/traces", replay.JSON, zip, replay.Access{})
		add("HTTP JSON"+suffix, sender, err)
	}
	return all
}

func TestEveryWayArrivesWhole(t *testing.T) {
	sink := new(consumertest.TracesSink)
	grpc, web := receive(t, sink)
	want := requestsOf(t, capturetest.One(t, "py-openinference/n13_seven_of_three"))
	for name, sender := range senders(t, grpc, web) {
		sink.Reset()
		for _, td := range want {
			require.NoError(t, sender.Send(t.Context(), td), name)
		}
		require.Equal(t, prints(rowsOf(want)), prints(rowsOf(sink.AllTraces())), name)
	}
}

func TestRefusalsAreToldFromOutages(t *testing.T) {
	td := requestsOf(t, capturetest.One(t, "plain-go/fanout"))[0]
	for err, want := range map[error]error{
		errors.New("full"):                           replay.ErrUnavailable,
		consumererror.NewPermanent(errors.New("no")): replay.ErrRefused,
	} {
		grpc, web := receive(t, consumertest.NewErr(err))
		for name, sender := range senders(t, grpc, web) {
			require.ErrorIs(t, sender.Send(t.Context(), td), want, name)
		}
	}
	nobody := free(t)
	for name, sender := range senders(t, nobody, nobody) {
		require.ErrorIs(t, sender.Send(t.Context(), td), replay.ErrUnavailable, name)
	}
}

func TestAnAnswerThatIsNoOTLPIsNoAcknowledgement(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("welcome")) }))
	defer server.Close()
	for _, encoding := range []replay.Encoding{replay.Protobuf, replay.JSON} {
		sender, err := replay.NewHTTP(server.URL, encoding, false, replay.Access{})
		require.NoError(t, err)
		require.ErrorIs(t, sender.Send(t.Context(), ptrace.NewTraces()), replay.ErrRefused)
		require.NoError(t, sender.Close())
	}
	_, err := replay.NewHTTP("ftp://here", replay.Protobuf, false, replay.Access{})
	require.ErrorContains(t, err, "http://127.0.0.1:4318")
}
