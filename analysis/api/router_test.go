package api

import (
	"io"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"

	"github.com/retryledger/retryledger/analysis/answer"
)

func TestOtherExtensionsAnswerAtTheAddressOfTheAPI(t *testing.T) {
	s := start(t, &storeExtension{}, nil)
	router, err := RouterFrom(host{map[component.ID]component.Component{component.NewID(componentType): s}}, component.NewID(componentType))
	require.NoError(t, err)

	hello := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"hello":"you"}`)
	})
	require.NoError(t, router.Handle("/api/v1/hello", hello))
	require.Error(t, router.Handle("/api/v1/hello", hello), "it is served already")
	require.Error(t, router.Handle("/api/v1/runs/{name}", hello), "the ledger's own questions stay")

	var said map[string]string
	require.Equal(t, http.StatusOK, ask(t, s, "/api/v1/hello", &said))
	require.Equal(t, "you", said["hello"])

	var failure answer.Failure
	require.Equal(t, http.StatusForbidden, ask(t, s, "/api/v1/hello", &failure, func(r *http.Request) { r.Host = "evil.example" }),
		"the guard stands before it too")
	require.Equal(t, http.StatusNotFound, ask(t, s, "/nothing", &failure))
	require.Contains(t, failure.Error, "/api/v1/hello")
	require.Contains(t, failure.Error, "/api/v1/runs/{id}")
}

// A collector whose configuration leaves alerts out says so, and how to mend it.
func TestAlertsThatAreNotConfigured(t *testing.T) {
	s := start(t, &storeExtension{}, nil)
	for _, path := range []string{"/api/v1/alerts", "/api/v1/alerts/history", "/api/v1/rules", "/api/v1/gates/canary?service=shop", "/api/v1/breakers/openai", "/alertmanager/api/v2/alerts"} {
		var failure answer.Failure
		require.Equal(t, http.StatusNotFound, ask(t, s, path, &failure), path)
		require.Equal(t, "alerts are not configured on this collector: add retryledger_alerts to extensions and to service::extensions", failure.Error, path)
	}
	require.NoError(t, s.Handle("/api/v1/alerts", http.NotFoundHandler()))
	var failure answer.Failure
	require.Equal(t, http.StatusNotFound, ask(t, s, "/api/v1/alertsx", &failure))
	require.Contains(t, failure.Error, "there is nothing here")
	require.Equal(t, http.StatusNotFound, ask(t, s, "/api/v1/alerts/a/b", &failure))
	require.Contains(t, failure.Error, "there is nothing here")
}

func TestURLIsWhereThisMachineReachesTheAPI(t *testing.T) {
	s := start(t, &storeExtension{}, nil)
	require.Equal(t, "http://"+s.addr.String(), s.URL())
	everywhere := start(t, &storeExtension{}, func(c *Config) { c.ServerConfig.NetAddr.Endpoint = "0.0.0.0:0" })
	require.Regexp(t, `^http://127\.0\.0\.1:\d+$`, everywhere.URL())
}

func TestRouterFromNamesWhatIsMissing(t *testing.T) {
	id := component.NewID(componentType)
	_, err := RouterFrom(host{}, id)
	require.ErrorContains(t, err, "service::extensions")
	_, err = RouterFrom(host{map[component.ID]component.Component{id: &storeExtension{}}}, id)
	require.ErrorContains(t, err, "is no API")
}
