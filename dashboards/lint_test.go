package dashboards

import (
	"bytes"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestCommittedJSONIsCurrent: go generate ./dashboards mends it.
func TestCommittedJSONIsCurrent(t *testing.T) {
	t.Parallel()
	made, err := Build()
	require.NoError(t, err)
	var names []string
	for _, file := range made {
		names = append(names, file.Name)
		committed, err := os.ReadFile(filepath.Join("json", file.Name))
		require.NoError(t, err)
		assert.True(t, bytes.Equal(file.JSON, committed), "json/%s is not what its program makes; run: go generate ./dashboards", file.Name)
	}
	there, err := filepath.Glob("json/*")
	require.NoError(t, err)
	for _, name := range there {
		assert.Contains(t, names, filepath.Base(name), "no program makes it; run: go generate ./dashboards")
	}
}

// coreTypes are the panels that Grafana 11 to 13 bring along and the dashboards may use.
var coreTypes = []string{
	"barchart", "bargauge", "gauge", "heatmap", "histogram", "stat", "state-timeline", "status-history", "table", "text", "timeseries", "traces",
}

func TestEveryPanelSaysWhatItShows(t *testing.T) {
	t.Parallel()
	grains := regexp.MustCompile(`Grain: \*\*[a-z ,()]+\*\*\. \[Definition\]\(` + regexp.QuoteMeta(docs) + `([a-z-]+\.md)(#[a-z0-9_-]+)\)`)
	for uid, d := range documents(t) {
		assert.LessOrEqual(t, len(uid), 40, uid)
		assert.Equal(t, schemaVersion, d.SchemaVersion, uid)
		assert.Contains(t, d.Tags, Tag, uid)
		assert.NotEmpty(t, d.Description, uid)
		ids := map[int]bool{}
		for _, p := range d.all() {
			name := uid + ": " + p.Title
			assert.False(t, ids[p.ID], "%s: its id is another panel's", name)
			ids[p.ID] = true
			assert.Contains(t, coreTypes, p.Type, name)
			assert.NotEmpty(t, p.Title, name)
			if p.Type == "text" {
				continue
			}
			assert.NotEmpty(t, p.FieldConfig.Defaults.Unit, "%s has no unit", name)
			assert.NotEmpty(t, p.FieldConfig.Defaults.NoValue, "%s does not say what to do where there is nothing", name)
			if link := grains.FindStringSubmatch(p.Description); assert.NotNil(t, link, "%s names no grain and definition: %s", name, p.Description) {
				assertAnchor(t, name, link[1], link[2])
			}
			assert.NotEmpty(t, p.Targets, name)
			for _, q := range append([]documentQuery{{Datasource: *p.Datasource}}, p.Targets...) {
				assert.Equal(t, documentSource{dataSourceType, "${" + dataSourceVariable + "}"}, q.Datasource, name)
			}
		}
	}
}

// assertAnchor looks for a heading in docs/.
func assertAnchor(t *testing.T, name, page, anchor string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "docs", page))
	require.NoError(t, err, name)
	for line := range strings.Lines(string(text)) {
		if heading, ok := strings.CutPrefix(strings.TrimLeft(line, "#"), " "); ok && strings.HasPrefix(line, "#") {
			slug := strings.ReplaceAll(regexp.MustCompile(`[^\w\- ]`).ReplaceAllString(strings.ToLower(strings.TrimSpace(heading)), ""), " ", "-")
			if "#"+slug == anchor {
				return
			}
		}
	}
	t.Errorf("%s links to docs/%s%s, which is no heading", name, page, anchor)
}

func TestPanelsDoNotOverlap(t *testing.T) {
	t.Parallel()
	for uid, d := range documents(t) {
		var placed []documentPanel
		for _, p := range d.Panels {
			g := p.GridPos
			assert.True(t, g.X >= 0 && g.W > 0 && g.H > 0 && g.X+g.W <= 24, "%s: %s is not on the grid: %+v", uid, p.Title, g)
			for _, other := range placed {
				o := other.GridPos
				apart := g.X >= o.X+o.W || o.X >= g.X+g.W || g.Y >= o.Y+o.H || o.Y >= g.Y+g.H
				assert.True(t, apart, "%s: %q lies over %q", uid, p.Title, other.Title)
			}
			placed = append(placed, p)
		}
	}
}

// TestLinksLeadSomewhere: the dashboard of each link exists, and so do the variables
// that it sets there and those that it takes from here.
func TestLinksLeadSomewhere(t *testing.T) {
	t.Parallel()
	all := documents(t)
	variables := func(uid string) []string {
		var names []string
		for _, v := range all[uid].Templating.List {
			names = append(names, v.Name)
		}
		return names
	}
	taken := regexp.MustCompile(`\$\{(\w+)(?::\w+)?\}`)
	for uid, d := range all {
		for _, p := range d.all() {
			for _, link := range p.links() {
				if link == "${__value.raw}" {
					continue // an address that the cell itself holds
				}
				name := uid + ": " + p.Title + ": " + link
				assert.NotContains(t, link, " ", name)
				for _, match := range taken.FindAllStringSubmatch(link, -1) {
					assert.True(t, match[1] == "__url_time_range" || slices.Contains(variables(uid), match[1]), "%s takes %s, which is no variable here", name, match[1])
				}
				target, rest, ok := strings.Cut(strings.TrimPrefix(link, "/d/"), "?")
				_, exists := all[target]
				if !assert.True(t, ok && strings.HasPrefix(link, "/d/") && exists, "%s leads to no dashboard", name) {
					continue
				}
				assert.Contains(t, rest, "${__url_time_range}", "%s loses the range", name)
				for part := range strings.SplitSeq(rest, "&") {
					if match := regexp.MustCompile(`^\$\{(\w+):queryparam\}$`).FindStringSubmatch(part); match != nil {
						assert.Contains(t, variables(target), match[1], name)
					} else if set, ok := strings.CutPrefix(part, "var-"); ok {
						variable, _, _ := strings.Cut(set, "=")
						assert.Contains(t, variables(target), variable, name)
					}
				}
			}
		}
		for _, link := range d.Links {
			address, err := url.Parse(link.URL)
			require.NoError(t, err)
			if strings.HasPrefix(link.URL, "/d/") {
				_, exists := all[strings.TrimPrefix(address.Path, "/d/")]
				assert.True(t, exists, "%s: %s leads to no dashboard", uid, link.Title)
			}
		}
	}
}

func TestVariablesCombine(t *testing.T) {
	t.Parallel()
	for uid, d := range documents(t) {
		for _, v := range d.Templating.List {
			if v.Type != "query" {
				continue
			}
			assert.True(t, v.Multi && v.IncludeAll && v.AllValue == nil, "%s: %s: several values, and All as $__conditionalAll knows it", uid, v.Name)
			assert.NotEmpty(t, v.Label, uid)
		}
		for _, p := range d.all() {
			for _, q := range p.Targets {
				for _, used := range regexp.MustCompile(`\$\{(\w+)`).FindAllStringSubmatch(q.RawSQL, -1) {
					if d.writes(used[1]) {
						assert.NotContains(t, strings.ReplaceAll(q.RawSQL, "${"+used[1]+":percentencode}", ""), "${"+used[1], "%s: %s: a text must be encoded", uid, p.Title)
						continue
					}
					assert.Contains(t, q.RawSQL, ", $"+used[1]+")", "%s: %s: %s without $__conditionalAll makes All a long list", uid, p.Title, used[1])
				}
			}
		}
	}
}
