package alerter

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/extension/extensiontest"

	"github.com/retryledger/retryledger/alerts/report"
	"github.com/retryledger/retryledger/analysis/api"
	"github.com/retryledger/retryledger/internal/engine/enginetest"
	"github.com/retryledger/retryledger/internal/ledgerstore"
	"github.com/retryledger/retryledger/schema"
)

// host holds a store that is there when the test says so, and an API.
type host struct {
	component.Host
	extensions map[component.ID]component.Component
}

func (h host) GetExtensions() map[component.ID]component.Component { return h.extensions }

type lateStore struct {
	component.Component
	ledgerstore.Store
	dir   string
	conn  driver.Conn
	ready chan struct{}
}

func (s *lateStore) DataDir() string { return s.dir }

func (s *lateStore) Conn(ctx context.Context) (driver.Conn, error) {
	select {
	case <-s.ready:
		return s.conn, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// hosted is a host with a store and a running API, and the API's address.
func hosted(t *testing.T, store *lateStore) (host, string) {
	t.Helper()
	factory := api.NewFactory()
	config, ok := factory.CreateDefaultConfig().(*api.Config)
	require.True(t, ok)
	config.ServerConfig.NetAddr.Endpoint = "127.0.0.1:0"
	server, err := factory.Create(t.Context(), extensiontest.NewNopSettings(factory.Type()), config)
	require.NoError(t, err)
	h := host{extensions: map[component.ID]component.Component{
		component.MustNewID(defaultStore): store, component.MustNewID(defaultAPI): server,
	}}
	require.NoError(t, server.Start(t.Context(), h))
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		assert.NoError(t, server.Shutdown(context.Background()))
	})
	router, err := api.RouterFrom(h, component.MustNewID(defaultAPI))
	require.NoError(t, err)
	return h, router.URL()
}

func created(t *testing.T, change func(*Config)) *alerter {
	t.Helper()
	config := defaults()
	change(config)
	ext, err := NewFactory().Create(t.Context(), extensiontest.NewNopSettings(Type), config)
	require.NoError(t, err)
	a, ok := ext.(*alerter)
	require.True(t, ok)
	return a
}

func unchanged(*Config) {}

func asked(t *testing.T, url string, out any) error {
	t.Helper()
	response, err := http.Get(url)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answered %s", url, response.Status)
	}
	return json.NewDecoder(response.Body).Decode(out)
}

func TestExtensionFollowsTheStore(t *testing.T) {
	db := enginetest.Database(t)
	require.NoError(t, schema.Migrate(t.Context(), db.Conn, schema.MigrateOptions{}))
	late := &lateStore{dir: t.TempDir(), conn: db.Conn, ready: make(chan struct{})}
	h, url := hosted(t, late)
	a := created(t, unchanged)
	assert.Equal(t, []component.ID{component.MustNewID(defaultStore), component.MustNewID(defaultAPI)}, a.Dependencies())
	require.NoError(t, a.Start(t.Context(), h))
	var alerts report.Alerts
	require.NoError(t, asked(t, url+report.AlertsPath, &alerts), "it answers before the store is there")
	assert.Nil(t, alerts.EvaluatedAt)
	assert.NotZero(t, alerts.Rules)
	close(late.ready)
	require.Eventually(t, func() bool {
		return asked(t, url+report.AlertsPath, &alerts) == nil && alerts.EvaluatedAt != nil
	}, patienceOfTests, 20*time.Millisecond)
	require.NoError(t, a.Shutdown(t.Context()))
	require.NoError(t, a.Shutdown(t.Context()), "twice")
	assert.FileExists(t, filepath.Join(late.dir, folder, stateName), "kept at the end")
}

func TestExtensionEndsWhileTheStoreIsAway(t *testing.T) {
	late := &lateStore{dir: t.TempDir(), ready: make(chan struct{})}
	h, _ := hosted(t, late)
	a := created(t, unchanged)
	require.NoError(t, a.Start(t.Context(), h))
	require.NoError(t, a.Shutdown(t.Context()))
	assert.NoFileExists(t, filepath.Join(late.dir, folder, stateName), "nothing is known, so nothing is written over")
}

// A start that fails says why, and leaves nothing running.
func TestExtensionDoesNotStart(t *testing.T) {
	late := &lateStore{dir: t.TempDir(), ready: make(chan struct{})}
	h, _ := hosted(t, late)
	bad := filepath.Join(t.TempDir(), "rules.yaml")
	write(t, bad, mistake)
	for name, c := range map[string]struct {
		host   component.Host
		change func(*Config)
		parts  []string
	}{
		"no store":         {componenttest.NewNopHost(), unchanged, []string{"start the alerts", "retryledger_store", "service::extensions"}},
		"no API":           {host{extensions: map[component.ID]component.Component{component.MustNewID(defaultStore): late}}, unchanged, []string{"retryledger_api", "service::extensions"}},
		"mistake in rules": {h, func(c *Config) { c.RulesFile = bad }, []string{bad + ":1", "five"}},
		"no rules":         {h, func(c *Config) { c.RulesFile = bad + ".gone" }, []string{"rules_file", "default pack"}},
		"no delivery":      {h, func(c *Config) { c.Delivery.ConfigFile = bad + ".gone" }, []string{"config_file"}},
	} {
		t.Run(name, func(t *testing.T) {
			err := created(t, c.change).Start(t.Context(), c.host)
			require.Error(t, err)
			for _, part := range c.parts {
				assert.ErrorContains(t, err, part)
			}
		})
	}
}
