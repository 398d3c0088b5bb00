package dashboards

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"

	"go.yaml.in/yaml/v3"
)

// DataSourceUID is the UID under which the ledger's data source is made.
const DataSourceUID = "retryledger"

const dataSourceName = "Retryledger"

// folder is where the dashboards stand in Grafana, UID and title.
const (
	folderUID   = "retryledger"
	folderTitle = "Retryledger"
)

// PasswordVariable names the environment variable with the password of the data source's
// user: Grafana's own for exported files, this process's for Apply.
const PasswordVariable = "RETRYLEDGER_CLICKHOUSE_PASSWORD" //nolint:gosec // a name, no credential

// Ledger is where Grafana finds the ledger.
type Ledger struct {
	Address  string // host:port of ClickHouse's native protocol, as Grafana sees it
	Username string
	Database string
	Secure   bool // with TLS
}

// settings are the data source's, as the plugin keeps them.
func (l Ledger) settings() (map[string]any, error) {
	host, port, err := net.SplitHostPort(l.Address)
	if err != nil {
		return nil, fmt.Errorf("read the address %q of ClickHouse: write it as host:port, such as 127.0.0.1:9000", l.Address)
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return nil, fmt.Errorf("read the address %q of ClickHouse: its port is no number", l.Address)
	}
	return map[string]any{
		"host": host, "port": number, "protocol": "native", "secure": l.Secure, "username": l.Username, "defaultDatabase": l.Database,
	}, nil
}

// source is the data source as Grafana takes it, from a file or over its API.
func (l Ledger) source(password string) (map[string]any, error) {
	settings, err := l.settings()
	if err != nil {
		return nil, err
	}
	return map[string]any{
		"name": dataSourceName, "uid": DataSourceUID, "type": dataSourceType, "access": "proxy", "jsonData": settings,
		"secureJsonData": map[string]any{"password": password},
	}, nil
}

// Exported says what Export writes.
type Exported struct {
	Ledger     Ledger
	SeenAt     string // the folder of the dashboards as Grafana sees it, "" for where it is now
	AlertRules bool   // also the rule pack, as rules that Grafana evaluates
}

// Export writes what a Grafana needs to provision itself below folder: dashboards/*.json,
// and files for its folders provisioning/datasources, provisioning/dashboards and, where
// asked for, provisioning/alerting. It returns the files, and overwrites those of an
// earlier export.
func Export(folder string, e Exported) ([]string, error) {
	ledger, seenAt := e.Ledger, e.SeenAt
	ledgerSource, err := ledger.source("${" + PasswordVariable + "}")
	if err != nil {
		return nil, err
	}
	files, err := Files()
	if err != nil {
		return nil, err
	}
	if seenAt == "" {
		if seenAt, err = filepath.Abs(filepath.Join(folder, "dashboards")); err != nil {
			return nil, fmt.Errorf("find %s: %w", folder, err)
		}
	}
	sources := map[string]any{
		"apiVersion":  1,
		"datasources": []any{ledgerSource},
	}
	providers := map[string]any{
		"apiVersion": 1,
		"providers": []any{map[string]any{
			"name": "retryledger", "folder": folderTitle, "folderUid": folderUID, "type": "file", "allowUiUpdates": false,
			"options": map[string]any{"path": seenAt},
		}},
	}
	provisioned := map[string]any{"datasources": sources, "dashboards": providers}
	if e.AlertRules {
		group, err := alertRules(DataSourceUID)
		if err != nil {
			return nil, err
		}
		if provisioned["alerting"], err = alertFile(group); err != nil {
			return nil, err
		}
	}
	var written []string
	write := func(content []byte, path ...string) error {
		name := filepath.Join(append([]string{folder}, path...)...)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil { //nolint:gosec // Grafana reads it as another user
			return fmt.Errorf("make a folder for %s: %w", name, err)
		}
		if err := os.WriteFile(name, content, 0o644); err != nil { //nolint:gosec // the same; it holds no secret
			return fmt.Errorf("write %s: %w", name, err)
		}
		written = append(written, name)
		return nil
	}
	for _, file := range files {
		if err := write(file.JSON, "dashboards", file.Name); err != nil {
			return written, err
		}
	}
	for name, content := range provisioned {
		text, err := yaml.Marshal(content)
		if err != nil {
			return written, fmt.Errorf("write the provisioning of %s: %w", name, err)
		}
		if err := write(text, "provisioning", name, "retryledger.yaml"); err != nil {
			return written, err
		}
	}
	return written, nil
}
