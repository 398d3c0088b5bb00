package dashboards

import (
	"fmt"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

// docs is where the definitions of the numbers stand.
const docs = "https://github.com/retryledger/retryledger/blob/main/docs/"

// grain is what a number counts. Every panel names its own.
type grain string

// The grains, as docs/accounting.md defines them.
const (
	grainRun       grain = "run"
	grainStep      grain = "step in a run"
	grainOperation grain = "operation"
	grainAttempt   grain = "attempt"
	grainCall      grain = "model call"
	grainRequest   grain = "request"
	grainProvider  grain = "provider"
	grainVisit     grain = "visit of a step"
	grainAlert     grain = "alert"
	grainViolation grain = "execution of a node, key and direction"
	grainSpan      grain = "span"
	grainTrace     grain = "trace"
	grainCollector grain = "collector"
	grainTable     grain = "table of the store"
	grainMixed     grain = "attempt (retries) and operation"
)

// panel is what every panel must say beside how it looks.
type panel struct {
	title      string
	says       string // one or two sentences
	grain      grain
	definition string // page and anchor below docs
	empty      string // what to do where there is nothing to show
	unit       string // of Grafana's units
	width      uint32 // of 24 columns
	height     uint32 // rows of 30 pixels
	draws      cog.Builder[dashboard.Panel]
	queries    []query
	overrides  []override
}

// override changes how one field of the answer looks. Its column must be in the answer.
type override struct {
	column     string
	properties []dashboard.DynamicConfigValue
}

func with(id string, value any) dashboard.DynamicConfigValue {
	return dashboard.DynamicConfigValue{Id: id, Value: value}
}

// column overrides one field.
func column(name string, properties ...dashboard.DynamicConfigValue) override {
	return override{name, properties}
}

// coloured draws a field in one colour.
func coloured(colour string) dashboard.DynamicConfigValue {
	return with("color", map[string]any{"mode": "fixed", "fixedColor": colour})
}

// named shows a field under another name.
func named(name string) dashboard.DynamicConfigValue { return with("displayName", name) }

// inUnit gives a field a unit of its own.
func inUnit(unit string) dashboard.DynamicConfigValue { return with("unit", unit) }

// linked makes a field's values links.
func linked(title, url string) dashboard.DynamicConfigValue {
	return with("links", []map[string]any{{"title": title, "url": url}})
}

// nothing shows an empty cell as a dash, instead of the panel's text for no data at all.
func nothing() dashboard.DynamicConfigValue { return with("noValue", "–") }

// atSeconds shows a point in time to the second.
func atSeconds() dashboard.DynamicConfigValue { return inUnit("time:YYYY-MM-DD HH:mm:ss") }

// toStep links a step's name to its dashboard. The answer has the columns service and step.
func toStep() dashboard.DynamicConfigValue {
	return linked("Look at this step", to(uidStep, "service", "service", "step", "step"))
}

// wide gives a table's column a width in pixels.
func wide(pixels int) dashboard.DynamicConfigValue { return with("custom.width", pixels) }

// built is the panel with all that it must say, without a place on the grid.
func (p panel) built(id uint32) (dashboard.Panel, error) {
	made, err := p.draws.Build()
	if err != nil {
		return made, fmt.Errorf("build panel %q: %w", p.title, err)
	}
	description := fmt.Sprintf("%s\n\nGrain: **%s**. [Definition](%s%s)", p.says, p.grain, docs, p.definition)
	made.Id, made.Title, made.Description, made.Datasource = &id, &p.title, &description, &source
	for _, q := range p.queries {
		made.Targets = append(made.Targets, q)
	}
	if made.FieldConfig == nil {
		made.FieldConfig = &dashboard.FieldConfigSource{}
	}
	defaults := &made.FieldConfig.Defaults
	defaults.NoValue, defaults.Unit = &p.empty, &p.unit
	for _, o := range p.overrides {
		made.FieldConfig.Overrides = append(made.FieldConfig.Overrides, dashboard.DashboardFieldConfigSourceOverrides{
			Matcher: dashboard.MatcherConfig{Id: "byName", Options: o.column}, Properties: o.properties,
		})
	}
	if made.FieldConfig.Overrides == nil {
		made.FieldConfig.Overrides = []dashboard.DashboardFieldConfigSourceOverrides{}
	}
	return made, nil
}

// sheet lays panels out in lines from left to right.
type sheet struct {
	panels []dashboard.PanelOrRowPanel
	nextID uint32
	y      uint32
	errors []error
}

// line adds panels side by side; they share one height.
func (s *sheet) line(panels ...panel) {
	x := uint32(0)
	for _, p := range panels {
		s.nextID++
		made, err := p.built(s.nextID)
		if err != nil {
			s.errors = append(s.errors, err)
			continue
		}
		made.GridPos = &dashboard.GridPos{X: x, Y: s.y, W: p.width, H: p.height}
		x += p.width
		s.panels = append(s.panels, dashboard.PanelOrRowPanel{Panel: &made})
	}
	if len(panels) > 0 {
		s.y += panels[0].height
	}
}

// heading puts a title over the lines that follow.
func (s *sheet) heading(title string) {
	s.nextID++
	s.panels = append(s.panels, dashboard.PanelOrRowPanel{RowPanel: &dashboard.RowPanel{
		Type: "row", Title: &title, Id: s.nextID, Panels: []dashboard.Panel{},
		GridPos: &dashboard.GridPos{X: 0, Y: s.y, W: 24, H: 1},
	}})
	s.y++
}
