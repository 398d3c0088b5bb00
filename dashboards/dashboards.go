// Package dashboards draws the ledger in Grafana. Each dashboard is a Go file of its
// own; the JSON it makes is committed in json/ and part of the program. Panels read
// the views of package schema, as the API and the command line do, so that a number
// is the same everywhere. They use the official ClickHouse data source and panels
// that every Grafana has, in the classic schema of Grafana 11 to 13.
package dashboards

import (
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"path"

	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

//go:generate go run ./generate

//go:embed json/*.json
var generated embed.FS

// Tag is on every dashboard, by which they link to each other.
const Tag = "retryledger"

// page is one dashboard before it is built.
type page struct {
	uid, title, says string
	tags             []string
	from             string // of the default range, which ends now
	variables        []string
	fill             func(*sheet)
}

// pages lists the dashboards in the order in which their links stand.
func pages() []page {
	return []page{retryBudget, step, runExplorer, providers, alertsAndCanary, contracts, theLedger}
}

// File is a dashboard as Grafana takes it.
type File struct {
	UID, Title string
	Name       string // of the file, with .json
	JSON       []byte
}

// schemaVersion is that of Grafana 11.0. Later releases bring it to theirs as they load it.
const schemaVersion = 39

// Build makes the dashboards from their programs.
func Build() ([]File, error) {
	list := pages()
	files := make([]File, 0, len(list))
	for _, p := range list {
		made, err := p.build()
		if err != nil {
			return nil, fmt.Errorf("build the dashboard %q: %w", p.title, err)
		}
		encoded, err := json.MarshalIndent(made, "", "  ")
		if err != nil {
			return nil, fmt.Errorf("write the dashboard %q as JSON: %w", p.title, err)
		}
		files = append(files, File{UID: p.uid, Title: p.title, Name: p.uid + ".json", JSON: append(encoded, '\n')})
	}
	return files, nil
}

// Files are the committed dashboards, which are what Build makes.
func Files() ([]File, error) {
	list := pages()
	files := make([]File, 0, len(list))
	for _, p := range list {
		name := p.uid + ".json"
		content, err := generated.ReadFile(path.Join("json", name))
		if err != nil {
			return nil, fmt.Errorf("read the dashboard %q: %w", p.title, err)
		}
		files = append(files, File{UID: p.uid, Title: p.title, Name: name, JSON: content})
	}
	return files, nil
}

// build uses the SDK's classic schema, for that of its successor needs Grafana 12.
//
//nolint:staticcheck // the SDK calls it deprecated
func (p page) build() (dashboard.Dashboard, error) {
	builder := dashboard.NewDashboardBuilder(p.title).
		Uid(p.uid).Description(p.says).Tags(append([]string{Tag}, p.tags...)).
		Time(p.from, "now").Timezone("browser").Refresh("1m").
		Tooltip(dashboard.DashboardCursorSyncCrosshair).Editable()
	made, err := builder.Build()
	if err != nil {
		return made, err
	}
	var s sheet
	p.fill(&s)
	made.SchemaVersion = schemaVersion
	made.Panels = s.panels
	made.Templating.List = variables(p.variables...)
	made.Annotations.List = annotations(p.variables)
	made.Links = navigation(p.uid)
	return made, errors.Join(s.errors...)
}
