package dashboards

import (
	"github.com/grafana/grafana-foundation-sdk/go/barchart"
	"github.com/grafana/grafana-foundation-sdk/go/common"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/stat"
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
func tiles() *stat.PanelBuilder {
	return stat.NewPanelBuilder().
		ReduceOptions(common.NewReduceDataOptionsBuilder().Calcs([]string{"lastNotNull"}).Fields("/.*/").Values(false)).
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

// overTime is what panels over time share. At most 120 points, so that a bar can be seen.
func overTime() *timeseries.PanelBuilder {
	return timeseries.NewPanelBuilder().MaxDataPoints(120).
		Legend(common.NewVizLegendOptionsBuilder().ShowLegend(true).DisplayMode(common.LegendDisplayModeList).Placement(common.LegendPlacementBottom)).
		Tooltip(common.NewVizTooltipOptionsBuilder().Mode(common.TooltipDisplayModeMulti).Sort(common.SortOrderDescending)).
		ColorScheme(dashboard.NewFieldColorBuilder().Mode(dashboard.FieldColorModeIdFixed).FixedColor(colourPlain)).
		AxisSoftMin(0)
}

// withLines draws thresholds as dashed lines.
func withLines(p *timeseries.PanelBuilder, t *dashboard.ThresholdsConfigBuilder) *timeseries.PanelBuilder {
	return p.Thresholds(t).ThresholdsStyle(common.NewGraphThresholdsStyleConfigBuilder().Mode(common.GraphThresholdsStyleModeDashed))
}

// stackedBars is a bar for each row, of one colour for each column.
func stackedBars(xField string) *barchart.PanelBuilder {
	return barchart.NewPanelBuilder().XField(xField).Orientation(common.VizOrientationHorizontal).
		Stacking(common.StackingModeNormal).ShowValue(common.VisibilityModeAuto).BarWidth(0.9).GroupWidth(0.9).FillOpacity(85).LineWidth(0).
		Legend(common.NewVizLegendOptionsBuilder().ShowLegend(true).DisplayMode(common.LegendDisplayModeList).Placement(common.LegendPlacementBottom)).
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

func outcomeColumns() []override {
	list := make([]override, len(outcomes))
	for i, o := range outcomes {
		list[i] = column(o.name, coloured(o.colour))
	}
	return list
}
