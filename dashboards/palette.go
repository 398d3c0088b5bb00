package dashboards

import "github.com/retryledger/retryledger/analysis/attribution"

// A colour means the same on every dashboard. Colours of one group, which stand side
// by side, are told apart by people who do not see red or green or blue: a test
// simulates that. The layers are colours of Okabe and Ito, but for call, which is lighter
// to be read on dark.
const (
	colourTransport    = "#56B4E9"
	colourCall         = "#1A86C8"
	colourNode         = "#E69F00"
	colourOrchestrator = "#D55E00"
	colourWorker       = "#CC79A7"
	colourFallback     = "#999933"

	colourFirstTry   = "#009E73"
	colourAfterRetry = "#7BC47F"
	colourHandled    = "#785EF0"
	colourFailed     = "#E5004C"
	colourUndecided  = "#ABABAB"

	colourMidway    = "#B5179E" // a response that broke off after it had begun
	colourUnflagged = colourAfterRetry
	colourOrphaned  = "#B04A1E"
	colourCancelled = "#F070F0"

	colourWarning = "#D08000" // the threshold below which nothing needs to be done
	colourBreach  = colourFailed
	colourPlain   = "#7B93B8" // a number that is neither good nor bad
)

// layer is a layer of retries as panels show it.
type layer struct {
	column string // of the views usage and step_usage
	name   string
	colour string
}

// layers are in the order in which they nest, the innermost first.
var layers = []layer{
	{"retries_transport", string(attribution.LayerTransport), colourTransport},
	{"retries_call", string(attribution.LayerCall), colourCall},
	{"retries_node", string(attribution.LayerNode), colourNode},
	{"retries_orchestrator", string(attribution.LayerOrchestrator), colourOrchestrator},
	{"retries_worker", string(attribution.LayerWorker), colourWorker},
}

// outcome is what became of an operation, as panels show it.
type outcome struct {
	column string // of the view usage
	name   string
	colour string
}

// outcomes are in the order from good to bad.
var outcomes = []outcome{
	{"succeeded_first_try", "first try", colourFirstTry},
	{"succeeded_after_retry", "after retry", colourAfterRetry},
	{"succeeded_by_fallback", "by fallback", colourFallback},
	{"handled", "failed, handled", colourHandled},
	{"failed", "failed", colourFailed},
	{"undecided", "undecided", colourUndecided},
}

// completion is a state of a run, as panels show it.
type completion struct{ name, colour string }

// completions are in the order from good to bad.
var completions = []completion{
	{"complete", colourFirstTry},
	{"unflagged", colourUnflagged},
	{"running", colourPlain},
	{"interrupted", colourUndecided},
	{"cancelled", colourCancelled},
	{"incomplete", colourWarning},
	{"orphaned", colourOrphaned},
	{"failed", colourFailed},
}

// groups are the colours that stand side by side.
var groups = [][]string{
	{colourTransport, colourCall, colourNode, colourOrchestrator, colourWorker, colourFallback},
	{colourFirstTry, colourAfterRetry, colourFallback, colourHandled, colourFailed, colourUndecided},
	{colourFirstTry, colourWarning, colourBreach},
	{colourFirstTry, colourWarning, colourHandled, colourFailed, colourUndecided},
	{colourPlain, colourMidway},
	{colourFallback, colourFailed, colourUndecided},
	{colourFirstTry, colourUnflagged, colourPlain, colourUndecided, colourCancelled, colourWarning, colourOrphaned, colourFailed},
}
