package ledgerstore

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/config/configopaque"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/extension/extensiontest"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/retryledger/retryledger/internal/engine"
	"github.com/retryledger/retryledger/internal/engine/enginetest"
	"github.com/retryledger/retryledger/internal/porttest"
	"github.com/retryledger/retryledger/schema"
)

type host struct {
	component.Host
	extensions map[component.ID]component.Component
}

func (h host) GetExtensions() map[component.ID]component.Component { return h.extensions }

// created is a store that has not been started and is shut down with the test.
func created(t *testing.T, change func(*Config)) (*ledgerStore, *observer.ObservedLogs) {
	t.Helper()
	config := defaultConfig()
	config.DataDir = t.TempDir()
	change(config)
	require.NoError(t, confmap.Validate(config))
	core, logs := observer.New(zap.WarnLevel)
	settings := extensiontest.NewNopSettings(Type)
	settings.Logger = zap.New(core)
	ext, err := NewFactory().Create(t.Context(), settings, config)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, ext.Shutdown(context.Background())) })
	s, ok := ext.(*ledgerStore)
	require.True(t, ok)
	return s, logs
}

// sharedEngine lets the store use an engine that the test may use too.
func sharedEngine(e *engine.Engine) func(*Config) {
	opts := e.ClientOptions()
	return func(c *Config) {
		c.Endpoint = opts.Addr[0]
		c.Username = opts.Auth.Username
		c.Password = configopaque.String(opts.Auth.Password)
	}
}

func TestEmbeddedEngine(t *testing.T) {
	s, _ := created(t, func(*Config) {})
	_, err := s.Conn(canceled(t))
	require.ErrorContains(t, err, "not been started")
	require.NoError(t, s.Start(t.Context(), componenttest.NewNopHost()))

	store, err := From(host{extensions: map[component.ID]component.Component{s.id: s}}, s.id)
	require.NoError(t, err)
	conn, err := store.Conn(t.Context())
	require.NoError(t, err)
	require.NoError(t, schema.InsertSpans(t.Context(), conn, rand.Uint64, []schema.Span{{TraceID: schema.TraceID{1}, SpanID: schema.SpanID{1}, ReceivedNs: time.Now().UnixNano()}}))
	assert.Equal(t, s.config.DataDir, store.DataDir())
	assert.Contains(t, store.Location(), store.DataDir())

	// A second collector on the folder is told so, before it could do harm.
	second, _ := created(t, func(c *Config) { c.DataDir = s.config.DataDir })
	err = second.Start(t.Context(), componenttest.NewNopHost())
	require.ErrorContains(t, err, "another collector uses the data folder")
	require.ErrorContains(t, err, "data_dir")

	require.NoError(t, s.Shutdown(t.Context()))
	_, err = store.Conn(t.Context())
	require.ErrorContains(t, err, "shut down")

	// What was kept is there at the next start, in the same folder.
	again, _ := created(t, func(c *Config) { c.DataDir = s.config.DataDir })
	require.NoError(t, again.Start(t.Context(), componenttest.NewNopHost()))
	conn, err = again.Conn(t.Context())
	require.NoError(t, err)
	var n uint64
	require.NoError(t, conn.QueryRow(t.Context(), "SELECT count() FROM spans").Scan(&n))
	assert.EqualValues(t, 1, n)
}

func canceled(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}

func TestEndpointThatRefuses(t *testing.T) {
	e := enginetest.Start(t, engine.Options{})
	onEngine := sharedEngine(e)

	s, _ := created(t, func(c *Config) { onEngine(c); c.Password = "wrong-secret" })
	err := s.Start(t.Context(), componenttest.NewNopHost())
	require.ErrorContains(t, err, "check username and password")
	assert.NotContains(t, err.Error(), "wrong-secret")

	s, _ = created(t, onEngine)
	require.NoError(t, s.Start(t.Context(), componenttest.NewNopHost()))
	conn, err := s.Conn(t.Context())
	require.NoError(t, err)
	require.NoError(t, conn.Exec(t.Context(), "INSERT INTO schema_migrations (version, name) VALUES (4000000, 'of the future')"))

	// A release that does not know the schema leaves it alone and says why.
	newer, _ := created(t, onEngine)
	err = newer.Start(t.Context(), componenttest.NewNopHost())
	var typed *schema.NewerSchemaError
	require.ErrorAs(t, err, &typed)
	assert.Equal(t, 4000000, typed.Found)
	assert.ErrorContains(t, err, "at least as new")
}

func TestEndpointThatComesLater(t *testing.T) {
	opts := engine.Options{DataDir: t.TempDir(), Listen: porttest.Free(t, 1)[0]}
	e := enginetest.Start(t, opts) // makes the password
	onEngine := sharedEngine(e)
	require.NoError(t, e.Shutdown(t.Context()))

	s, logs := created(t, onEngine)
	require.NoError(t, s.Start(t.Context(), componenttest.NewNopHost()))
	require.Equal(t, 1, logs.FilterMessageSnippet("kept in the journal").Len())
	_, err := s.Conn(canceled(t))
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorContains(t, err, "connection refused", "the reason is known while waiting")

	enginetest.Start(t, opts)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	conn, err := s.Conn(ctx)
	require.NoError(t, err)
	require.NoError(t, conn.Exec(ctx, "SELECT 1 FROM ledger"))
}

// A server is replaced by one that has nothing: the tables are made anew, and spans go in.
func TestTablesThatAreGoneAreMadeAnew(t *testing.T) {
	e := enginetest.Start(t, engine.Options{})
	s, logs := created(t, sharedEngine(e))
	s.lookAfter = 20 * time.Millisecond
	require.NoError(t, s.Start(t.Context(), componenttest.NewNopHost()))
	conn, err := s.Conn(t.Context())
	require.NoError(t, err)
	span := []schema.Span{{TraceID: schema.TraceID{1}, SpanID: schema.SpanID{1}, ReceivedNs: time.Now().UnixNano()}}
	require.NoError(t, schema.InsertSpans(t.Context(), conn, rand.Uint64, span))
	require.NoError(t, conn.Exec(t.Context(), "DROP DATABASE retryledger SYNC"))
	require.Eventually(t, func() bool {
		err := schema.InsertSpans(t.Context(), conn, rand.Uint64, span)
		require.True(t, err == nil || schema.IsRetryable(err), "%v", err)
		return err == nil
	}, time.Minute, 20*time.Millisecond)
	require.Eventually(t, func() bool { return logs.FilterMessageSnippet("made anew").Len() == 1 }, time.Minute, 10*time.Millisecond)
	require.NoError(t, conn.Exec(t.Context(), "SELECT 1 FROM ledger"))
}

func TestShutdownWhileWaiting(t *testing.T) {
	address := porttest.Free(t, 1)[0]
	s, _ := created(t, func(c *Config) { c.Endpoint = address })
	require.NoError(t, s.Start(t.Context(), componenttest.NewNopHost()))
	require.NoError(t, s.Shutdown(t.Context()))
	require.NoError(t, s.Shutdown(t.Context()))
}

func TestShutdownWithoutStart(t *testing.T) {
	s, _ := created(t, func(*Config) {})
	require.NoError(t, s.Shutdown(t.Context()))
}

func TestFromSaysWhatIsMissing(t *testing.T) {
	id := component.NewIDWithName(Type, "main")
	_, err := From(host{}, id)
	require.ErrorContains(t, err, "service::extensions")
	_, err = From(host{extensions: map[component.ID]component.Component{id: nil}}, id)
	require.ErrorContains(t, err, "is no store")
}
