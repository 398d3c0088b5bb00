package dashboards

import (
	"strings"

	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

// The UIDs are part of the interface: alerts, bookmarks and links name them.
const (
	uidRetryBudget = "retryledger-budget"
	uidStep        = "retryledger-step"
	uidRuns        = "retryledger-runs"
	uidProviders   = "retryledger-providers"
	uidAlerts      = "retryledger-alerts"
	uidContracts   = "retryledger-contracts"
	uidLedger      = "retryledger-ledger"
)

// navigation links all dashboards but the one itself, keeping range and variables.
func navigation(uid string) []dashboard.DashboardLink {
	var links []dashboard.DashboardLink
	for _, p := range pages() {
		if p.uid == uid {
			continue
		}
		links = append(links, dashboard.DashboardLink{
			Title: p.title, Type: dashboard.DashboardLinkTypeLink, Icon: "dashboard", Tooltip: p.says,
			Url: pointer("/d/" + p.uid), Tags: []string{}, IncludeVars: true, KeepTime: true,
		})
	}
	return append(links, dashboard.DashboardLink{
		Title: "What the numbers mean", Type: dashboard.DashboardLinkTypeLink, Icon: "doc", Url: pointer(docs + "accounting.md"),
		Tags: []string{}, TargetBlank: true,
	})
}

// toRun links a run's id, in the column of this name, to the run explorer. The answer
// has a column service too.
func toRun(column string) dashboard.DynamicConfigValue {
	return linked("Look at this run", to(uidRuns, "service", "service", runVariable, column))
}

// to is the address of a dashboard with the range and the other variables kept. vars
// are pairs of a variable and the column of the row that it takes its value from.
func to(uid string, vars ...string) string {
	var b strings.Builder
	b.WriteString("/d/" + uid + "?${__url_time_range}")
	set := map[string]bool{}
	for i := 0; i+1 < len(vars); i += 2 {
		set[vars[i]] = true
		b.WriteString("&var-" + vars[i] + "=${__data.fields." + vars[i+1] + ":percentencode}")
	}
	b.WriteString("&${" + dataSourceVariable + ":queryparam}")
	for _, name := range ofRuns {
		if !set[name] {
			b.WriteString("&${" + name + ":queryparam}")
		}
	}
	return b.String()
}
