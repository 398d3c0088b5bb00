package dashboards

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/grafana/grafana-foundation-sdk/go/alerting"
	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/cog/variants"
	"github.com/grafana/grafana-foundation-sdk/go/common"
	"github.com/grafana/grafana-foundation-sdk/go/expr"
	"github.com/prometheus/common/model"

	"github.com/retryledger/retryledger/alerts/rules"
	"github.com/retryledger/retryledger/alerts/signals"
)

// The rule pack for those who alert in Grafana. A rule asks the store for the ratio of its
// signal over its window; Grafana keeps the states. What the collector's evaluator does
// beyond that is listed in docs/dashboards.md.

// Where the rules stand in Grafana. A folder of their own, for Grafana provisions alert
// rules before the folder of the dashboards is there.
const (
	alertFolderUID   = "retryledger-alerts"
	alertFolderTitle = "Retryledger alerts"
	alertGroup       = "retryledger"
	// alertInterval is the shortest that Grafana evaluates at where nobody changed that.
	alertInterval = 10 * time.Second
)

// counted is what a signal counts, as sums over a view with a window.
type counted struct {
	view, numerator, denominator string
	where                        string // "" for every row
	says                         string // what the ratio is, after its number
}

// countedBy are the signals of the default pack.
var countedBy = map[signals.Signal]counted{
	signals.OperationErrorRatio: {"visit_usage", "sum(lost)", "sum(ended)", "", "of the visits of steps failed"},
	signals.FallbackRatio:       {"usage", "sum(fallback_operations)", "sum(operations)", "", "of the operations fell back to another candidate"},
	signals.ServerErrorRatio:    {"request_usage", "sum(server_errors)", "sum(sent)", "", "of the requests met a server error"},
	signals.RetryRatio:          {"retry_usage", "(" + strings.Join(layerSums(), " + ") + ")", "sum(operations)", "", "retries per operation"},
	signals.BudgetExhaustedRatio: {
		"run_usage", "countIf(exhausted)", "count()", "", "of the runs used up their retry budget",
	},
	signals.IncompleteRunRatio: {
		"run_usage", "countIf(completion IN ('incomplete', 'orphaned'))", "count()",
		"completion IN ('complete', 'incomplete', 'failed', 'unflagged', 'orphaned')", "of the runs did not finish what they had to",
	},
	signals.ContractViolationRatio: {"execution_usage", "sum(violating)", "sum(ended)", "", "of the executions violated their contract"},
}

// watched tells whether Grafana can ask the store for what the rule watches. What watches
// the collector's own evaluation has nothing to watch in Grafana, whose alert
// DatasourceError stands for it.
func watched(r *rules.Rule) bool {
	return r.Signal != rules.EvaluationStalled && r.Signal != rules.IngestStalled
}

// ratioQuery asks for a rule's ratio by group. The window is (to − window, to], as the
// evaluator's; groups with too small a sample have no row, for they are not judged.
func ratioQuery(r *rules.Rule) (string, error) {
	c, ok := countedBy[r.Signal]
	if !ok {
		return "", fmt.Errorf("no query is known for the signal %s", r.Signal)
	}
	var columns, names, aliases, conditions []string
	for _, d := range r.GroupBy {
		columns = append(columns, fmt.Sprintf("toString(of_%s) AS %s", d, d))
		aliases = append(aliases, fmt.Sprintf("%s AS of_%s", d, d))
		names = append(names, string(d))
	}
	if c.where != "" {
		conditions = append(conditions, c.where)
	}
	for d, m := range r.Where {
		if m != rules.Equals("").Not() {
			return "", fmt.Errorf("the filter %s%s is not one that a query is known for", d, m)
		}
		conditions = append(conditions, string(d)+" != ''")
	}
	var b strings.Builder
	fmt.Fprintf(&b, "SELECT %s\nFROM (\n    SELECT %s\n    FROM %s(since_ns = %s * 1000000 + 1, until_ns = %s * 1000000 + 1)",
		strings.Join(append(columns, "ratio"), ", "), strings.Join(append(aliases, c.numerator+" / "+c.denominator+" AS ratio"), ", "), c.view, fromMs, toMs)
	if len(conditions) > 0 {
		b.WriteString("\n    WHERE " + strings.Join(conditions, " AND "))
	}
	if len(names) > 0 {
		b.WriteString("\n    GROUP BY " + strings.Join(names, ", "))
	}
	fmt.Fprintf(&b, "\n    HAVING %s >= %d\n)\nORDER BY ratio DESC LIMIT %d", c.denominator, max(r.MinSamples, 1), r.MaxGroups)
	return b.String(), nil
}

// alertQuery is a query of ours as a rule holds it.
type alertQuery struct {
	query
	IntervalMs    int `json:"intervalMs"` // Grafana's own, which it adds where they are not stated
	MaxDataPoints int `json:"maxDataPoints"`
}

var _ variants.Dataquery = alertQuery{}

// Build makes an alertQuery its own builder.
func (q alertQuery) Build() (variants.Dataquery, error) { return q, nil }

// alertRules are the default pack's rules, which ask the data source with this UID.
func alertRules(dataSource string) (alerting.RuleGroup, error) {
	var list []cog.Builder[alerting.Rule]
	for _, r := range rules.Default().Rules() {
		if !watched(r) {
			continue
		}
		sql, err := ratioQuery(r)
		if err != nil {
			return alerting.RuleGroup{}, fmt.Errorf("write the rule %s for Grafana: %w", r.Name, err)
		}
		list = append(list, grafanaRule(r, dataSource, sql))
	}
	return alerting.NewRuleGroupBuilder(alertGroup).FolderUid(alertFolderUID).Interval(alerting.Duration(alertInterval / time.Second)).Rules(list).Build()
}

func grafanaRule(r *rules.Rule, dataSource, sql string) *alerting.RuleBuilder {
	asked := newQuery("ratio", asTable, sql)
	asked.Datasource = common.DataSourceRef{Type: pointer(dataSourceType), Uid: &dataSource}
	window := alerting.Duration(r.Window / time.Second)
	return alerting.NewRuleBuilder(r.Name).
		Uid("retryledger-" + strings.ReplaceAll(r.Name, "_", "-")).FolderUID(alertFolderUID).RuleGroup(alertGroup).OrgID(1).
		WithQuery(alerting.NewQueryBuilder("ratio").DatasourceUid(dataSource).RelativeTimeRange(window, 0).
			Model(alertQuery{query: asked, IntervalMs: 1000, MaxDataPoints: 43200})).
		WithQuery(alerting.NewQueryBuilder("above").DatasourceUid(expressions).RelativeTimeRange(window, 0).Model(
			expr.NewExprBuilder().TypeThreshold(expr.NewTypeThresholdBuilder().RefId("above").Expression("ratio").Datasource(common.DataSourceRef{Type: pointer(expressions), Uid: pointer(expressions)}).
				IntervalMs(1000).MaxDataPoints(43200).
				Conditions([]cog.Builder[expr.ExprTypeThresholdConditions]{
					expr.NewExprTypeThresholdConditionsBuilder().Evaluator(expr.NewExprTypeThresholdConditionsEvaluatorBuilder().
						Type(expr.ExprTypeThresholdConditionsEvaluatorTypeGt).Params([]float64{r.Threshold.Ratio()})),
				})))).
		Condition("above").For(model.Duration(r.For).String()).KeepFiringFor(model.Duration(r.KeepFiringFor).String()).
		NoDataState(alerting.RuleNoDataStateOK).ExecErrState(alerting.RuleExecErrStateError).IsPaused(false).
		Labels(r.Labels).Annotations(alertTexts(r))
}

// expressions is the UID of Grafana's own data source for expressions.
const expressions = "__expr__"

// alertTexts are the annotations. They name no variable with a dollar, for Grafana fills
// the environment into provisioned files.
func alertTexts(r *rules.Rule) map[string]string {
	var about []string
	link := "/d/" + uidRetryBudget
	var set []string
	for _, d := range r.GroupBy {
		about = append(about, fmt.Sprintf("{{ .Labels.%s }}", d))
		set = append(set, fmt.Sprintf("var-%s={{ .Labels.%s }}", d, d))
		switch d {
		case signals.Step:
			link = "/d/" + uidStep
		case signals.Provider:
			link = "/d/" + uidProviders
		case signals.Service, signals.Environment, signals.Version:
		}
	}
	return map[string]string{
		"summary": fmt.Sprintf("%s: {{ humanizePercentage .Values.ratio.Value }} %s within %s, above %s",
			strings.Join(about, " · "), countedBy[r.Signal].says, short(r.Window), r.Threshold),
		"dashboard":   link + "?" + strings.Join(set, "&"),
		"runbook_url": docs + "signals.md#" + string(r.Signal),
	}
}

// asMap is a part of an alert rule as its JSON.
func asMap(part any) (map[string]any, error) {
	encoded, err := json.Marshal(part)
	if err != nil {
		return nil, err
	}
	var found map[string]any
	err = json.Unmarshal(encoded, &found)
	return found, err
}

// alertFile is the group as a file that provisions it.
func alertFile(group alerting.RuleGroup) (map[string]any, error) {
	listed := make([]any, 0, len(group.Rules))
	for _, r := range group.Rules {
		rule, err := asMap(r)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("write the rule %s", r.Title), err)
		}
		for _, name := range []string{"orgID", "folderUID", "ruleGroup"} { // the file says them of the group
			delete(rule, name)
		}
		rule["keepFiringFor"] = rule["keep_firing_for"]
		delete(rule, "keep_firing_for")
		listed = append(listed, rule)
	}
	return map[string]any{"apiVersion": 1, "groups": []any{map[string]any{
		"orgId": 1, "name": alertGroup, "folder": alertFolderTitle, "interval": model.Duration(alertInterval).String(), "rules": listed,
	}}}, nil
}
