package dashboards

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What tests read of a dashboard is its JSON, as Grafana does, and not the program
// that made it.

type document struct {
	UID           string
	Title         string
	Description   string
	Tags          []string
	SchemaVersion int
	Panels        []documentPanel
	Templating    struct{ List []documentVariable }
	Annotations   struct{ List []documentAnnotation }
	Links         []documentLink
}

type documentPanel struct {
	ID                 int
	Type               string
	Title, Description string
	Collapsed          bool
	GridPos            struct{ X, Y, W, H int }
	Datasource         *documentSource
	Targets            []documentQuery
	Panels             []documentPanel
	Options            map[string]any
	MaxDataPoints      float64
	Interval           string
	FieldConfig        struct {
		Defaults struct {
			Unit, NoValue string
			Links         []documentLink
		}
		Overrides []struct {
			Matcher struct {
				ID      string
				Options any
			}
			Properties []struct {
				ID    string
				Value any
			}
		}
	}
}

type documentSource struct{ Type, UID string }

type documentQuery struct {
	Datasource documentSource
	RefID      string
	RawSQL     string
	Format     format
	EditorType string
	QueryType  string
}

type documentVariable struct {
	Name, Type, Label string
	Multi, IncludeAll bool
	AllValue          *string
	Query             any
	Datasource        *documentSource
}

// sql is the query of a variable's options.
func (v documentVariable) sql() string {
	fields, _ := v.Query.(map[string]any)
	sql, _ := fields["rawSql"].(string)
	return sql
}

type documentAnnotation struct {
	Name   string
	Target documentQuery
}

type documentLink struct{ Title, Type, URL string }

// writes tells whether a variable is a text that the reader writes.
func (d document) writes(name string) bool {
	return slices.ContainsFunc(d.Templating.List, func(v documentVariable) bool { return v.Name == name && v.Type == "textbox" })
}

// all lists the panels without rows, those of closed rows too.
func (d document) all() []documentPanel {
	var list []documentPanel
	for _, p := range d.Panels {
		if p.Type == "row" {
			list = append(list, p.Panels...)
			continue
		}
		list = append(list, p)
	}
	return list
}

// links are the addresses that a panel leads to.
func (p documentPanel) links() []string {
	var list []string
	for _, link := range p.FieldConfig.Defaults.Links {
		list = append(list, link.URL)
	}
	for _, override := range p.FieldConfig.Overrides {
		for _, property := range override.Properties {
			if property.ID != "links" {
				continue
			}
			links, _ := property.Value.([]any)
			for _, link := range links {
				fields, _ := link.(map[string]any)
				address, _ := fields["url"].(string)
				list = append(list, address)
			}
		}
	}
	return list
}

// documents are the committed dashboards by UID.
func documents(t testing.TB) map[string]document {
	t.Helper()
	files, err := Files()
	require.NoError(t, err)
	found := map[string]document{}
	for _, file := range files {
		var d document
		require.NoError(t, json.Unmarshal(file.JSON, &d), file.Name)
		found[d.UID] = d
	}
	require.NotEmpty(t, found)
	return found
}

// panelOf finds a panel by its title.
func panelOf(t testing.TB, uid, title string) documentPanel {
	t.Helper()
	for _, p := range documents(t)[uid].all() {
		if strings.EqualFold(p.Title, title) {
			return p
		}
	}
	t.Fatalf("the dashboard %s has no panel %q", uid, title)
	return documentPanel{}
}
