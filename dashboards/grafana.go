package dashboards

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"
)

// TokenVariable names the environment variable with the token of a service account.
const TokenVariable = "GRAFANA_TOKEN"

// maxGrafanaAnswer bounds what is read of an answer, in bytes.
const maxGrafanaAnswer = 32 << 20

// Grafana is a Grafana whose HTTP API makes the dashboards.
type Grafana struct {
	Base   *url.URL
	Token  string
	Client *http.Client
}

// Applied says what Apply did.
type Applied struct {
	DataSource string   // its name
	Made       []string // titles of dashboards, and "Alert rules", that are new or changed
	Unchanged  []string
	URL        string // of the start page
}

// GrafanaError is an answer of Grafana's that is no success.
type GrafanaError struct {
	Status  int
	Message string // Grafana's
	What    string // was asked for
	Remedy  string
}

func (e *GrafanaError) Error() string {
	text := fmt.Sprintf("%s: Grafana answered %d %s", e.What, e.Status, http.StatusText(e.Status))
	if e.Message != "" {
		text += ": " + e.Message
	}
	if e.Remedy != "" {
		text += "\n" + e.Remedy
	}
	return text
}

// Wanted says what Apply brings into Grafana beside the dashboards.
type Wanted struct {
	Ledger     *Ledger // makes a data source; nil: Grafana must have one of ClickHouse already
	Password   string  // of the ledger's user
	AlertRules bool    // the rule pack, as rules that Grafana evaluates
}

// Apply brings the data source, the folder and the dashboards into Grafana, and what else
// is wanted. It may be repeated: what is as it should be is left alone.
func (g Grafana) Apply(ctx context.Context, w Wanted) (Applied, error) {
	var applied Applied
	files, err := Files()
	if err != nil {
		return applied, err
	}
	uid := DataSourceUID
	if w.Ledger == nil {
		applied.DataSource, uid, err = g.existingDataSource(ctx)
	} else {
		applied.DataSource, err = g.putDataSource(ctx, *w.Ledger, w.Password)
	}
	if err != nil {
		return applied, err
	}
	if err := g.putFolder(ctx, folderUID, folderTitle); err != nil {
		return applied, err
	}
	note := func(title string, changed bool) {
		if changed {
			applied.Made = append(applied.Made, title)
		} else {
			applied.Unchanged = append(applied.Unchanged, title)
		}
	}
	for _, file := range files {
		changed, err := g.putDashboard(ctx, file)
		if err != nil {
			return applied, err
		}
		note(file.Title, changed)
	}
	if w.AlertRules {
		changed, err := g.putAlertRules(ctx, uid)
		if err != nil {
			return applied, err
		}
		note("Alert rules", changed)
	}
	applied.URL = g.Base.JoinPath("d", uidRetryBudget).String()
	return applied, nil
}

// existingDataSource finds a data source of ours, else any of ClickHouse.
func (g Grafana) existingDataSource(ctx context.Context) (name, uid string, err error) {
	var sources []struct{ UID, Name, Type string }
	if err := g.ask(ctx, "list the data sources", http.MethodGet, nil, &sources, "api", "datasources"); err != nil {
		return "", "", err
	}
	for _, s := range sources {
		if s.Type == dataSourceType && (name == "" || s.UID == DataSourceUID) {
			name, uid = s.Name, s.UID
		}
	}
	if name == "" {
		return "", "", fmt.Errorf("this Grafana has no ClickHouse data source: say with --clickhouse where the ledger is, and one is made")
	}
	return name, uid, nil
}

func (g Grafana) putDataSource(ctx context.Context, ledger Ledger, password string) (string, error) {
	source, err := ledger.source(password)
	if err != nil {
		return "", err
	}
	err = g.ask(ctx, "look for the plugin", http.MethodGet, nil, nil, "api", "plugins", dataSourceType, "settings")
	var answer *GrafanaError
	if errors.As(err, &answer) && answer.Status == http.StatusNotFound {
		return "", fmt.Errorf("this Grafana lacks the ClickHouse data source: install it, with\n  grafana cli plugins install %s\nor GF_PLUGINS_PREINSTALL=%s in its environment, and start it again", dataSourceType, dataSourceType)
	}
	err = g.ask(ctx, "look for the data source", http.MethodGet, nil, nil, "api", "datasources", "uid", DataSourceUID)
	switch {
	case errors.As(err, &answer) && answer.Status == http.StatusNotFound:
		err = g.ask(ctx, "make the data source", http.MethodPost, source, nil, "api", "datasources")
	case err == nil:
		err = g.ask(ctx, "change the data source", http.MethodPut, source, nil, "api", "datasources", "uid", DataSourceUID)
	}
	return dataSourceName, err
}

func (g Grafana) putFolder(ctx context.Context, uid, title string) error {
	err := g.ask(ctx, "look for the folder "+title, http.MethodGet, nil, nil, "api", "folders", uid)
	var answer *GrafanaError
	if errors.As(err, &answer) && answer.Status == http.StatusNotFound {
		return g.ask(ctx, "make the folder "+title, http.MethodPost, map[string]any{"uid": uid, "title": title}, nil, "api", "folders")
	}
	return err
}

// putAlertRules writes the group of the rule pack, unless Grafana has it as it is. A rule
// that the pack no longer has goes with it.
func (g Grafana) putAlertRules(ctx context.Context, dataSource string) (changed bool, err error) {
	group, err := alertRules(dataSource)
	if err != nil {
		return false, err
	}
	wanted, err := asMap(group)
	if err != nil {
		return false, fmt.Errorf("write the alert rules: %w", err)
	}
	if err := g.putFolder(ctx, alertFolderUID, alertFolderTitle); err != nil {
		return false, err
	}
	path := []string{"api", "v1", "provisioning", "folder", alertFolderUID, "rule-groups", alertGroup}
	var there map[string]any
	err = g.ask(ctx, "look for the alert rules", http.MethodGet, nil, &there, path...)
	var answer *GrafanaError
	if err != nil && (!errors.As(err, &answer) || answer.Status != http.StatusNotFound) {
		return false, err
	}
	if err == nil && contains(there, wanted) {
		return false, nil
	}
	return true, g.ask(ctx, "write the alert rules", http.MethodPut, wanted, nil, path...)
}

// contains tells whether what is there has all that is wanted. Grafana adds to alert rules
// what is its own, and knows better than we which organisation they are of.
func contains(there, wanted any) bool {
	switch wanted := wanted.(type) {
	case map[string]any:
		there, ok := there.(map[string]any)
		if !ok {
			return false
		}
		for name, value := range wanted {
			if name != "orgID" && !contains(there[name], value) {
				return false
			}
		}
		return true
	case []any:
		there, ok := there.([]any)
		return ok && slices.EqualFunc(there, wanted, contains)
	}
	return reflect.DeepEqual(wanted, there)
}

// putDashboard writes a dashboard, unless Grafana has it as it is.
func (g Grafana) putDashboard(ctx context.Context, file File) (changed bool, err error) {
	var wanted map[string]any
	if err := json.Unmarshal(file.JSON, &wanted); err != nil {
		return false, fmt.Errorf("read the dashboard %q: %w", file.Title, err)
	}
	var there struct {
		Dashboard map[string]any
		Meta      struct{ FolderUID string }
	}
	err = g.ask(ctx, fmt.Sprintf("look for the dashboard %q", file.Title), http.MethodGet, nil, &there, "api", "dashboards", "uid", file.UID)
	var answer *GrafanaError
	if err != nil && (!errors.As(err, &answer) || answer.Status != http.StatusNotFound) {
		return false, err
	}
	delete(there.Dashboard, "id") // Grafana's own
	delete(there.Dashboard, "version")
	if err == nil && there.Meta.FolderUID == folderUID && reflect.DeepEqual(wanted, there.Dashboard) {
		return false, nil
	}
	return true, g.ask(ctx, fmt.Sprintf("write the dashboard %q", file.Title), http.MethodPost, map[string]any{
		"dashboard": wanted, "folderUid": folderUID, "overwrite": true, "message": "retryledger dashboards apply",
	}, nil, "api", "dashboards", "db")
}

// ask sends one request and decodes a successful answer into out.
func (g Grafana) ask(ctx context.Context, what, method string, body, out any, path ...string) error {
	var content []byte
	if body != nil {
		var err error
		if content, err = json.Marshal(body); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
	}
	request, err := http.NewRequestWithContext(ctx, method, g.Base.JoinPath(path...).String(), bytes.NewReader(content))
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	request.Header.Set("Accept", "application/json")
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	if g.Token != "" {
		request.Header.Set("Authorization", "Bearer "+g.Token)
	} else if user := g.Base.User; user != nil {
		password, _ := user.Password()
		request.SetBasicAuth(user.Username(), password)
	}
	response, err := g.Client.Do(request)
	if err != nil {
		var cause *url.Error
		if errors.As(err, &cause) {
			err = cause.Err // without the address, which may hold a password
		}
		return fmt.Errorf("%s: no answer from %s: %w", what, g.Base.Host, err)
	}
	defer func() { _ = response.Body.Close() }()
	answered, err := io.ReadAll(io.LimitReader(response.Body, maxGrafanaAnswer))
	if err != nil {
		return fmt.Errorf("%s: read the answer of %s: %w", what, g.Base.Host, err)
	}
	if response.StatusCode < 200 || response.StatusCode > 299 {
		return refused(what, response.StatusCode, answered)
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(answered, out); err != nil {
		return fmt.Errorf("%s: %s is no Grafana: %w", what, g.Base.Host, err)
	}
	return nil
}

func refused(what string, status int, body []byte) error {
	failure := &GrafanaError{Status: status, What: what}
	var told struct{ Message string }
	if json.Unmarshal(body, &told) == nil {
		failure.Message = strings.TrimSpace(told.Message)
	}
	switch status {
	case http.StatusUnauthorized:
		failure.Remedy = "Set " + TokenVariable + " to the token of a service account: Administration, Users and access, Service accounts, in Grafana."
	case http.StatusForbidden:
		failure.Remedy = "The service account may not do that: give it the role Admin, or the permissions to write data sources, folders, dashboards and, with --alert-rules, alert rules."
	}
	return failure
}
