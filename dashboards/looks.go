package dashboards

import (
	"fmt"
	"strings"

	"github.com/grafana/grafana-foundation-sdk/go/barchart"
	"github.com/grafana/grafana-foundation-sdk/go/common"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/stat"
	"github.com/grafana/grafana-foundation-sdk/go/statetimeline"
	"github.com/grafana/grafana-foundation-sdk/go/table"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"
)

// The shares of retries in operations that are watched: the usual 10 % of traffic, and
// the 20 % above which retries are the load.
const (
	shareWatched = 0.10
	shareTooHigh = 0.20
)

// thresholds are steps of colour from a base upwards.
func thresholds(base string, steps ...dashboard.Threshold) *dashboard.ThresholdsConfigBuilder {
	return dashboard.NewThresholdsConfigBuilder().Mode(dashboard.ThresholdsModeAbsolute).
		Steps(append([]dashboard.Threshold{{Value: nil, Color: base}}, steps...))
}

func from(value float64, colour string) dashboard.Threshold {
	return dashboard.Threshold{Value: &value, Color: colour}
}

// retryShareThresholds are where retries ÷ operations begin to matter.
func retryShareThresholds() *dashboard.ThresholdsConfigBuilder {
	return thresholds(colourFirstTry, from(shareWatched, colourWarning), from(shareTooHigh, colourBreach))
}

// tiles shows each column of the first row as a large value.
func tiles() *stat.PanelBuilder { return tilesOf("/.*/") }

// tilesOf shows the columns whose names match.
func tilesOf(columns string) *stat.PanelBuilder {
	return stat.NewPanelBuilder().
		ReduceOptions(common.NewReduceDataOptionsBuilder().Calcs([]string{"lastNotNull"}).Fields(columns).Values(false)).
		ColorMode(common.BigValueColorModeValue).GraphMode(common.BigValueGraphModeNone).
		JustifyMode(common.BigValueJustifyModeAuto).TextMode(common.BigValueTextModeValueAndName).WideLayout(false).
		Orientation(common.VizOrientationVertical).
		ColorScheme(dashboard.NewFieldColorBuilder().Mode(dashboard.FieldColorModeIdThresholds)).
		Thresholds(thresholds(colourPlain))
}

// lines draws series over time.
func lines() *timeseries.PanelBuilder {
	return overTime().DrawStyle(common.GraphDrawStyleLine).LineWidth(2).FillOpacity(8).
		ShowPoints(common.VisibilityModeAuto).PointSize(5)
}

// bars draws counts over time, stacked.
func bars() *timeseries.PanelBuilder {
	return overTime().DrawStyle(common.GraphDrawStyleBars).FillOpacity(85).LineWidth(0).BarWidthFactor(0.9).
		Stacking(common.NewStackingConfigBuilder().Mode(common.StackingModeNormal).Group("A"))
}

// legend names the series below a panel.
func legend() *common.VizLegendOptionsBuilder {
	return common.NewVizLegendOptionsBuilder().ShowLegend(true).DisplayMode(common.LegendDisplayModeList).Placement(common.LegendPlacementBottom)
}

// overTime is what panels over time share. At most 120 points, so that a bar can be seen.
func overTime() *timeseries.PanelBuilder {
	return timeseries.NewPanelBuilder().MaxDataPoints(120).
		Legend(legend()).
		Tooltip(common.NewVizTooltipOptionsBuilder().Mode(common.TooltipDisplayModeMulti).Sort(common.SortOrderDescending)).
		ColorScheme(dashboard.NewFieldColorBuilder().Mode(dashboard.FieldColorModeIdFixed).FixedColor(colourPlain)).
		AxisSoftMin(0)
}

// withLines draws thresholds as dashed lines.
func withLines(p *timeseries.PanelBuilder, t *dashboard.ThresholdsConfigBuilder) *timeseries.PanelBuilder {
	return p.Thresholds(t).ThresholdsStyle(common.NewGraphThresholdsStyleConfigBuilder().Mode(common.GraphThresholdsStyleModeDashed))
}

// classic gives series that have no meaning of their own, such as providers, Grafana's colours.
func classic() *dashboard.FieldColorBuilder {
	return dashboard.NewFieldColorBuilder().Mode(dashboard.FieldColorModeIdPaletteClassic)
}

// state is a state as a timeline draws it.
type state struct {
	word   string // in the store
	name   string
	colour string
}

// numbered writes a column of states as their positions, for the data source takes
// text in a time series for a label.
func numbered(column string, states []state) string {
	words, numbers := make([]string, len(states)), make([]string, len(states))
	for i, s := range states {
		words[i], numbers[i] = "'"+s.word+"'", fmt.Sprint(i)
	}
	return "transform(toString(" + column + "), [" + strings.Join(words, ", ") + "], [" + strings.Join(numbers, ", ") + "], NULL)"
}

// timeline draws which state each series was in; its values are positions in states.
func timeline(states []state) *statetimeline.PanelBuilder {
	names := dashboard.ValueMap{Type: dashboard.MappingTypeValueToText, Options: map[string]dashboard.ValueMappingResult{}}
	steps := make([]dashboard.Threshold, len(states)-1)
	for i, s := range states {
		names.Options[fmt.Sprint(i)] = dashboard.ValueMappingResult{Text: &s.name, Color: &s.colour, Index: pointer(int32(i))}
		if i > 0 {
			steps[i-1] = from(float64(i), s.colour)
		}
	}
	return statetimeline.NewPanelBuilder().Mappings([]dashboard.ValueMapping{{ValueMap: &names}}).
		ColorScheme(dashboard.NewFieldColorBuilder().Mode(dashboard.FieldColorModeIdThresholds)).Thresholds(thresholds(states[0].colour, steps...)).
		ShowValue(common.VisibilityModeNever).MergeValues(true).RowHeight(0.8).FillOpacity(85).LineWidth(0).AlwaysSpanNulls().
		Legend(legend()).
		Tooltip(common.NewVizTooltipOptionsBuilder().Mode(common.TooltipDisplayModeSingle))
}

// stackedBars is a bar for each row, of one colour for each column.
func stackedBars(xField string) *barchart.PanelBuilder {
	return barchart.NewPanelBuilder().XField(xField).Orientation(common.VizOrientationHorizontal).
		Stacking(common.StackingModeNormal).ShowValue(common.VisibilityModeAuto).BarWidth(0.9).GroupWidth(0.9).FillOpacity(85).LineWidth(0).
		Legend(legend()).
		Tooltip(common.NewVizTooltipOptionsBuilder().Mode(common.TooltipDisplayModeMulti).Sort(common.SortOrderNone))
}

// list is a table, in the order of its rows.
func list() *table.PanelBuilder {
	return table.NewPanelBuilder().ShowHeader(true).CellHeight(common.TableCellHeightSm).
		ColorScheme(dashboard.NewFieldColorBuilder().Mode(dashboard.FieldColorModeIdFixed).FixedColor(colourPlain)).
		Thresholds(thresholds(colourPlain))
}

// gauge shows a cell's value as a bar of its column's largest.
func gauge() dashboard.DynamicConfigValue {
	return with("custom.cellOptions", map[string]any{"type": "gauge", "mode": "basic", "valueDisplayMode": "text"})
}

// colouredBy colours a cell's text by thresholds.
func colouredBy(t *dashboard.ThresholdsConfigBuilder) []dashboard.DynamicConfigValue {
	steps, err := t.Build()
	if err != nil {
		panic(err) // impossible: they are constants
	}
	return []dashboard.DynamicConfigValue{
		with("color", map[string]any{"mode": "thresholds"}), with("thresholds", steps),
		with("custom.cellOptions", map[string]any{"type": "color-text"}),
	}
}

// layerColumns colour the layers' columns and give them their short names.
func layerColumns() []override {
	list := make([]override, len(layers))
	for i, l := range layers {
		list[i] = column(l.name, coloured(l.colour))
	}
	return list
}

// hiddenLayers are the layers' columns, in which no value is a layer that is hidden.
func hiddenLayers() []override {
	columns := layerColumns()
	for i, l := range layers {
		columns[i].properties = append(columns[i].properties, nothing(), wide(max(58, 24+6*len(l.name))))
	}
	return columns
}

func outcomeColumns() []override {
	list := make([]override, len(outcomes))
	for i, o := range outcomes {
		list[i] = column(o.name, coloured(o.colour))
	}
	return list
}
