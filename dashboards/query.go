package dashboards

import (
	"errors"
	"reflect"

	"github.com/grafana/grafana-foundation-sdk/go/cog/variants"
	"github.com/grafana/grafana-foundation-sdk/go/common"
)

// dataSourceType is the id of the official ClickHouse data source.
const dataSourceType = "grafana-clickhouse-datasource"

// pluginVersion is the data source's version whose queries these are; a later one
// migrates them itself.
const pluginVersion = "4.0.0"

// source is the data source that the variable of this name chooses.
var source = common.DataSourceRef{Type: pointer(dataSourceType), Uid: pointer("${" + dataSourceVariable + "}")}

// format is how the data source reads a query's rows.
type format int

// The formats, as the data source numbers them.
const (
	asTimeSeries format = 0 // time, labels, numbers: a series for each set of labels; in order of time
	asTable      format = 1
	asTraces     format = 3
)

// queryTypes are what the data source's editor calls the formats.
var queryTypes = map[format]string{asTimeSeries: "timeseries", asTable: "table", asTraces: "traces"}

// query is a query in SQL as the data source keeps it. The SDK knows no such type.
type query struct {
	Datasource    common.DataSourceRef `json:"datasource"`
	PluginVersion string               `json:"pluginVersion"`
	EditorType    string               `json:"editorType"`
	RawSQL        string               `json:"rawSql"`
	Format        format               `json:"format"`
	QueryType     string               `json:"queryType"`
	RefID         string               `json:"refId"`
}

var _ variants.Dataquery = query{}

// newQuery is a query whose rows are read as f.
func newQuery(refID string, f format, sql string) query {
	return query{
		Datasource: source, PluginVersion: pluginVersion, EditorType: "sql",
		RawSQL: sql, Format: f, QueryType: queryTypes[f], RefID: refID,
	}
}

// ImplementsDataqueryVariant marks it as a query of a data source.
func (query) ImplementsDataqueryVariant() {}

// DataqueryType names the data source.
func (query) DataqueryType() string { return dataSourceType }

// Equals compares two queries field by field.
func (q query) Equals(other variants.Dataquery) bool { return reflect.DeepEqual(q, other) }

// Validate says what a query lacks.
func (q query) Validate() error {
	if q.RawSQL == "" || q.RefID == "" {
		return errors.New("a query needs SQL and a refId")
	}
	return nil
}

// Build makes a query its own builder, as the SDK's panels want one.
func (q query) Build() (variants.Dataquery, error) { return q, q.Validate() }

func pointer[T any](v T) *T { return &v }
