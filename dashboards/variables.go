package dashboards

import (
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

// dataSourceVariable chooses among the ClickHouse data sources.
const dataSourceVariable = "datasource"

// variable is a variable of a dashboard.
type variable struct {
	name, label, says string
	sql               string // its options; macros of the range are filled in. "": a text that the reader writes
}

// The texts that a reader writes on the run explorer.
const (
	runVariable     = "run"
	tracingVariable = "tracing"
)

// The variables, by name. Each narrows the ones after it no further: combinations
// that do not occur are empty, and every list stays fast.
var allVariables = map[string]variable{
	"service":     {"service", "Service", "service.name of the run's root span", options("service")},
	"environment": {"environment", "Environment", "deployment.environment.name of the run's root span", options("environment")},
	"version":     {"version", "Version", "service.version of the run's root span", options("version")},
	"step":        {"step", "Step", "A named unit of the pipeline: a graph's node, an activity, a task", options("step")},
	"provider":    {"provider", "Provider", "Who serves a model call. Only calls have one: choosing one leaves out what is not a call", options("provider")},
	"completion": {"completion", "Completion", "Whether a run came to its end: complete, failed, orphaned, …",
		"SELECT DISTINCT toString(completion) AS name FROM " + windowed("run_counts") + " ORDER BY name"},
	runVariable:     {runVariable, "Run", "The whole id of a run, or of one of its traces; a part of it finds nothing. Without one: the run with the most retries", ""},
	tracingVariable: {tracingVariable, "Tracing backend", "The address of a trace in your tracing backend, with {trace_id} in the place of its id: https://jaeger.example.com/trace/{trace_id}", ""},
}

func options(column string) string {
	return "SELECT DISTINCT " + stated(column) + " AS name FROM " + windowed("retry_usage") + " ORDER BY name"
}

// variables are the data source and the named ones.
func variables(names ...string) []dashboard.VariableModel {
	all := dashboard.VariableOption{
		Selected: pointer(true),
		Text:     dashboard.StringOrArrayOfString{ArrayOfString: []string{"All"}},
		Value:    dashboard.StringOrArrayOfString{ArrayOfString: []string{"$__all"}},
	}
	list := []dashboard.VariableModel{{
		Type: dashboard.VariableTypeDatasource, Name: dataSourceVariable, Label: pointer("Data source"),
		Query: &dashboard.StringOrMap{String: pointer(dataSourceType)}, Refresh: pointer(dashboard.VariableRefreshOnDashboardLoad),
		IncludeAll: pointer(false), Multi: pointer(false),
	}}
	for _, name := range names {
		v := allVariables[name]
		if v.sql == "" {
			list = append(list, written(v))
			continue
		}
		list = append(list, dashboard.VariableModel{
			Type: dashboard.VariableTypeQuery, Name: v.name, Label: &v.label, Description: &v.says, Datasource: &source,
			Query: &dashboard.StringOrMap{Map: map[string]any{
				"refId": v.name, "queryType": "sql", "editorType": "sql", "rawSql": v.sql,
			}},
			Definition: &v.sql, Current: &all, Multi: pointer(true), IncludeAll: pointer(true),
			Refresh: pointer(dashboard.VariableRefreshOnTimeRangeChanged), Sort: pointer(dashboard.VariableSortDisabled),
		})
	}
	return list
}

// written is a variable that is a text, at first an empty one.
func written(v variable) dashboard.VariableModel {
	none := dashboard.StringOrArrayOfString{String: pointer("")}
	return dashboard.VariableModel{
		Type: dashboard.VariableTypeTextbox, Name: v.name, Label: &v.label, Description: &v.says,
		Query:   &dashboard.StringOrMap{String: pointer("")},
		Current: &dashboard.VariableOption{Selected: pointer(true), Text: none, Value: none},
	}
}
