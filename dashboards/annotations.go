package dashboards

import (
	"slices"

	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

// alertsFired are the changes of alerts to firing; those about no service or step
// show whatever is chosen.
func alertsFired(filters string) string {
	return `SELECT at AS time, concat(rule, if(step = '', '', concat(' · ', step)), if(service = '', '', concat(' · ', service))) AS title,
    concat(toString(numerator), ' of ', toString(denominator), if(top_error = '', '', concat(', most often ', top_error))) AS text,
    ['alert', toString(rule)] AS tags
FROM alert_transitions FINAL
WHERE to = 'firing' AND $__timeFilter_ms(at)` + filters + `
ORDER BY at LIMIT 200`
}

// versionsBegun are the first attempts of versions that none of the week before had. The
// first version of a new service is left out.
func versionsBegun() string {
	return `SELECT begun AS time, concat(service, ' ', version) AS title, 'a new version' AS text, ['version'] AS tags
FROM (
    SELECT service, version, min(time) AS begun, min(begun) OVER (PARTITION BY service) AS service_begun
    FROM usage(since_ns = ` + since + ` - 604800000000000, until_ns = ` + until + `)
    WHERE version != '' AND ` + chosen(ofRuns...) + `
    GROUP BY service, version
)
WHERE begun > service_begun AND begun >= fromUnixTimestamp64Nano(` + since + `, 'UTC')
ORDER BY time LIMIT 200`
}

// annotations are marks on every panel over time.
func annotations(names []string) []dashboard.AnnotationQuery {
	var filters string
	for _, name := range ofCalls {
		if slices.Contains(names, name) {
			filters += "\n  AND (" + name + " = '' OR " + chosen(name) + ")"
		}
	}
	return []dashboard.AnnotationQuery{
		{
			Name: "Alerts", Datasource: &source, Enable: true, IconColor: colourBreach,
			Target: newQuery("alerts", asTable, alertsFired(filters)),
		},
		{
			Name: "New versions", Datasource: &source, Enable: true, IconColor: colourPlain,
			Target: newQuery("versions", asTable, versionsBegun()),
		},
	}
}
