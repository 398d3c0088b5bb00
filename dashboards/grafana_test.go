package dashboards

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// fakeGrafana keeps what Grafana's HTTP API documents for data sources, folders and
// dashboards, and refuses what the documentation does not know.
type fakeGrafana struct {
	t  *testing.T
	mu sync.Mutex

	plugin     bool
	status     int // of every answer, 0 for the right one
	sources    map[string]map[string]any
	folders    map[string]string
	dashboards map[string]map[string]any
	placed     map[string]string // folder by dashboard
	alertRules map[string]any    // the group of rules
	writes     []string          // method and path
	nextID     int
}

func newFakeGrafana(t *testing.T) (*fakeGrafana, Grafana) {
	t.Helper()
	fake := &fakeGrafana{t: t, plugin: true, sources: map[string]map[string]any{}, folders: map[string]string{}, dashboards: map[string]map[string]any{}, placed: map[string]string{}}
	server := httptest.NewServer(http.StripPrefix("/grafana", fake))
	t.Cleanup(server.Close)
	base, err := url.Parse(server.URL + "/grafana/")
	require.NoError(t, err)
	return fake, Grafana{Base: base, Token: "glsa_secret", Client: server.Client()}
}

func (f *fakeGrafana) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	answer := func(status int, body any) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		assert.NoError(f.t, json.NewEncoder(w).Encode(body))
	}
	message := func(status int, text string) { answer(status, map[string]any{"message": text}) }
	if r.Header.Get("Authorization") != "Bearer glsa_secret" {
		message(http.StatusUnauthorized, "Invalid API key")
		return
	}
	if f.status != 0 {
		message(f.status, "no permission")
		return
	}
	var body map[string]any
	if r.Method != http.MethodGet {
		f.writes = append(f.writes, r.Method+" "+r.URL.Path)
		content, _ := io.ReadAll(r.Body)
		if r.Header.Get("Content-Type") != "application/json" || json.Unmarshal(content, &body) != nil {
			message(http.StatusBadRequest, "bad request data")
			return
		}
	}
	uid := filepath.Base(r.URL.Path)
	switch route := r.Method + " " + strings.TrimSuffix(r.URL.Path, "/"+uid); {
	case route == "GET /api/plugins/grafana-clickhouse-datasource" && uid == "settings":
		if !f.plugin {
			message(http.StatusNotFound, "Plugin not found, no installed plugin with that id")
			return
		}
		answer(http.StatusOK, map[string]any{"id": dataSourceType})
	case r.Method+" "+r.URL.Path == "GET /api/datasources":
		list := []any{map[string]any{"uid": "other", "name": "Prometheus", "type": "prometheus"}}
		for _, s := range f.sources {
			list = append(list, s)
		}
		answer(http.StatusOK, list)
	case route == "GET /api/datasources/uid":
		if f.sources[uid] == nil {
			message(http.StatusNotFound, "Data source not found")
			return
		}
		answer(http.StatusOK, f.sources[uid])
	case r.Method+" "+r.URL.Path == "POST /api/datasources", route == "PUT /api/datasources/uid":
		name, _ := body["uid"].(string)
		for _, needed := range []string{"name", "type", "access"} {
			if body[needed] == nil {
				message(http.StatusBadRequest, "required: "+needed)
				return
			}
		}
		if r.Method == http.MethodPost && f.sources[name] != nil {
			message(http.StatusConflict, "data source with the same uid already exists")
			return
		}
		f.sources[name] = body
		answer(http.StatusOK, map[string]any{"message": "Datasource added"})
	case route == "GET /api/folders":
		if _, ok := f.folders[uid]; !ok {
			message(http.StatusNotFound, "folder not found")
			return
		}
		answer(http.StatusOK, map[string]any{"uid": uid, "title": f.folders[uid]})
	case r.Method+" "+r.URL.Path == "POST /api/folders":
		name, _ := body["uid"].(string)
		f.folders[name], _ = body["title"].(string)
		answer(http.StatusOK, body)
	case route == "GET /api/dashboards/uid":
		if f.dashboards[uid] == nil {
			message(http.StatusNotFound, "Dashboard not found")
			return
		}
		answer(http.StatusOK, map[string]any{"dashboard": f.dashboards[uid], "meta": map[string]any{"folderUid": f.placed[uid]}})
	case r.Method+" "+r.URL.Path == "POST /api/dashboards/db":
		made, _ := body["dashboard"].(map[string]any)
		name, _ := made["uid"].(string)
		folder, _ := body["folderUid"].(string)
		if made["title"] == nil || made["id"] != nil || f.folders[folder] == "" {
			message(http.StatusBadRequest, "bad request data")
			return
		}
		if f.dashboards[name] != nil && body["overwrite"] != true {
			message(http.StatusPreconditionFailed, "The dashboard has been changed by someone else")
			return
		}
		f.nextID++
		made["id"], made["version"] = f.nextID, f.nextID
		f.dashboards[name], f.placed[name] = made, folder
		answer(http.StatusOK, map[string]any{"uid": name, "status": "success"})
	case r.URL.Path == "/api/v1/provisioning/folder/"+alertFolderUID+"/rule-groups/"+alertGroup && r.Method == http.MethodGet:
		if f.alertRules == nil {
			message(http.StatusNotFound, "rule group does not exist")
			return
		}
		answer(http.StatusOK, f.alertRules)
	case r.URL.Path == "/api/v1/provisioning/folder/"+alertFolderUID+"/rule-groups/"+alertGroup && r.Method == http.MethodPut:
		if f.folders[alertFolderUID] == "" || body["title"] != alertGroup || body["folderUid"] != alertFolderUID || !f.completed(body["rules"]) {
			message(http.StatusBadRequest, "invalid alert rule")
			return
		}
		f.alertRules = body
		answer(http.StatusOK, body)
	default:
		f.t.Errorf("Grafana knows no %s %s", r.Method, r.URL.Path)
		message(http.StatusNotFound, "Not found")
	}
}

// completed tells whether the rules have what Grafana requires, and adds what is its own.
func (f *fakeGrafana) completed(list any) bool {
	rules, _ := list.([]any)
	for i := range rules {
		rule, _ := rules[i].(map[string]any)
		for _, required := range []string{"uid", "title", "ruleGroup", "folderUID", "condition", "data", "noDataState", "execErrState", "for"} {
			if rule[required] == nil || rule[required] == "" {
				return false
			}
		}
		f.nextID++
		rule["id"], rule["orgID"], rule["provenance"], rule["updated"], rule["record"] = f.nextID, 7, "api", "2026-03-01T12:00:00Z", nil
	}
	return len(rules) > 0
}

var nearby = Ledger{Address: "127.0.0.1:9000", Username: "grafana", Database: "retryledger"}

func TestApplyMakesAllAndMayBeRepeated(t *testing.T) {
	t.Parallel()
	fake, g := newFakeGrafana(t)
	files, err := Files()
	require.NoError(t, err)
	applied, err := g.Apply(t.Context(), Wanted{Ledger: &nearby, Password: "open sesame"})
	require.NoError(t, err)
	assert.Len(t, applied.Made, len(files))
	assert.Empty(t, applied.Unchanged)
	assert.Equal(t, g.Base.String()+"d/"+uidRetryBudget, applied.URL)
	source := fake.sources[DataSourceUID]
	assert.Equal(t, dataSourceType, source["type"])
	assert.Equal(t, map[string]any{
		"host": "127.0.0.1", "port": 9000.0, "protocol": "native", "secure": false, "username": "grafana", "defaultDatabase": "retryledger",
	}, source["jsonData"])
	assert.Equal(t, map[string]any{"password": "open sesame"}, source["secureJsonData"])
	assert.Equal(t, map[string]string{folderUID: folderTitle}, fake.folders)
	for _, file := range files {
		assert.Equal(t, folderUID, fake.placed[file.UID])
	}

	fake.writes = nil
	again, err := g.Apply(t.Context(), Wanted{})
	require.NoError(t, err)
	assert.Equal(t, "Retryledger", again.DataSource)
	assert.Len(t, again.Unchanged, len(files))
	assert.Empty(t, fake.writes, "what is as it should be is left alone")

	fake.dashboards[uidRetryBudget]["title"] = "Somebody's"
	fake.placed[uidStep] = "elsewhere"
	mended, err := g.Apply(t.Context(), Wanted{Ledger: &nearby})
	require.NoError(t, err)
	assert.ElementsMatch(t, []string{retryBudget.title, step.title}, mended.Made)
	assert.Equal(t, []string{"PUT /api/datasources/uid/retryledger", "POST /api/dashboards/db", "POST /api/dashboards/db"}, fake.writes)
}

func TestApplyWritesAlertRulesWhereAsked(t *testing.T) {
	t.Parallel()
	fake, g := newFakeGrafana(t)
	applied, err := g.Apply(t.Context(), Wanted{Ledger: &nearby})
	require.NoError(t, err)
	assert.NotContains(t, applied.Made, "Alert rules")
	assert.Nil(t, fake.alertRules)

	applied, err = g.Apply(t.Context(), Wanted{AlertRules: true})
	require.NoError(t, err)
	assert.Equal(t, []string{"Alert rules"}, applied.Made)
	assert.Equal(t, map[string]string{folderUID: folderTitle, alertFolderUID: alertFolderTitle}, fake.folders)
	wanted, err := alertRules(DataSourceUID)
	require.NoError(t, err)
	assert.Len(t, fake.alertRules["rules"], len(wanted.Rules))
	assert.EqualValues(t, 10, fake.alertRules["interval"])

	fake.writes = nil
	applied, err = g.Apply(t.Context(), Wanted{AlertRules: true})
	require.NoError(t, err)
	assert.Empty(t, applied.Made)
	assert.Contains(t, applied.Unchanged, "Alert rules")
	assert.Empty(t, fake.writes, "what Grafana added is left alone")

	first, _ := fake.alertRules["rules"].([]any)[0].(map[string]any)
	first["for"] = "1h"
	applied, err = g.Apply(t.Context(), Wanted{AlertRules: true})
	require.NoError(t, err)
	assert.Equal(t, []string{"Alert rules"}, applied.Made)
	assert.Equal(t, []string{"PUT /api/v1/provisioning/folder/" + alertFolderUID + "/rule-groups/" + alertGroup}, fake.writes)
	first, _ = fake.alertRules["rules"].([]any)[0].(map[string]any)
	assert.Equal(t, "0s", first["for"])
}

func TestApplySaysWhatToDo(t *testing.T) {
	t.Parallel()
	fake, g := newFakeGrafana(t)
	_, err := g.Apply(t.Context(), Wanted{})
	require.ErrorContains(t, err, "say with --clickhouse where the ledger is")
	fake.plugin = false
	_, err = g.Apply(t.Context(), Wanted{Ledger: &nearby})
	require.ErrorContains(t, err, "plugins install grafana-clickhouse-datasource")
	fake.status = http.StatusForbidden
	_, err = g.Apply(t.Context(), Wanted{})
	require.ErrorContains(t, err, "give it the role Admin")
	require.ErrorContains(t, err, "no permission")
	fake.status = 0
	other := g
	other.Token = "wrong"
	_, err = other.Apply(t.Context(), Wanted{})
	require.ErrorContains(t, err, "Set GRAFANA_TOKEN")
	_, err = g.Apply(t.Context(), Wanted{Ledger: &Ledger{Address: "clickhouse"}})
	require.ErrorContains(t, err, "host:port")
	none := g
	none.Base = &url.URL{Scheme: "http", Host: "127.0.0.1:1", User: url.UserPassword("me", "hidden")}
	_, err = none.Apply(t.Context(), Wanted{})
	require.ErrorContains(t, err, "no answer from 127.0.0.1:1")
	assert.NotContains(t, err.Error(), "hidden")
	assert.Empty(t, fake.writes)
}

func TestExportProvisions(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	written, err := Export(folder, Exported{Ledger: nearby})
	require.NoError(t, err)
	files, err := Files()
	require.NoError(t, err)
	assert.Len(t, written, len(files)+2)
	for _, file := range files {
		content, err := os.ReadFile(filepath.Join(folder, "dashboards", file.Name))
		require.NoError(t, err)
		assert.Equal(t, string(file.JSON), string(content))
	}
	read := func(name string) (found map[string]any) {
		content, err := os.ReadFile(filepath.Join(folder, "provisioning", name, "retryledger.yaml"))
		require.NoError(t, err)
		require.NoError(t, yaml.Unmarshal(content, &found))
		return found
	}
	providers, _ := read("dashboards")["providers"].([]any)
	require.Len(t, providers, 1)
	provider, _ := providers[0].(map[string]any)
	assert.Equal(t, map[string]any{"path": filepath.Join(folder, "dashboards")}, provider["options"])
	assert.Equal(t, []any{folderUID, "file"}, []any{provider["folderUid"], provider["type"]})
	sources, _ := read("datasources")["datasources"].([]any)
	require.Len(t, sources, 1)
	source, _ := sources[0].(map[string]any)
	assert.Equal(t, []any{dataSourceType, DataSourceUID}, []any{source["type"], source["uid"]})
	assert.Equal(t, map[string]any{"password": "${" + PasswordVariable + "}"}, source["secureJsonData"])

	_, err = os.Stat(filepath.Join(folder, "provisioning", "alerting"))
	require.ErrorIs(t, err, os.ErrNotExist, "only where asked for")
	written, err = Export(folder, Exported{Ledger: nearby, AlertRules: true})
	require.NoError(t, err)
	assert.Len(t, written, len(files)+3)
	groups, _ := read("alerting")["groups"].([]any)
	require.Len(t, groups, 1)
	group, _ := groups[0].(map[string]any)
	assert.Equal(t, []any{alertFolderTitle, alertGroup, "10s", 1}, []any{group["folder"], group["name"], group["interval"], group["orgId"]})
	wanted, err := alertRules(DataSourceUID)
	require.NoError(t, err)
	assert.Len(t, group["rules"], len(wanted.Rules))
	first, _ := group["rules"].([]any)[0].(map[string]any)
	assert.Equal(t, []any{"retryledger-step-errors", "0s", "2m"}, []any{first["uid"], first["for"], first["keepFiringFor"]})

	_, err = Export(folder, Exported{Ledger: nearby, SeenAt: "/elsewhere"})
	require.NoError(t, err, "over an earlier export")
	_, err = Export(folder, Exported{Ledger: Ledger{Address: "127.0.0.1:port"}})
	require.ErrorContains(t, err, "its port is no number")
}
