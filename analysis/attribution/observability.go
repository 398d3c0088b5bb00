package attribution

// What instrumentations hide. Where the repeats of a layer cannot be seen its number
// is null, never 0 (docs/accounting.md, "Evidence").

type layerSet uint8

const (
	hidesTransport layerSet = 1 << iota
	hidesCall
	hidesNode
	hidesOrchestrator
	hidesWorker
	// unreliable: not even what is seen can be trusted, for the spans have no hierarchy
	// or carry the attributes of other runs.
	unreliable
	// hidesModels: agents and tools are shown, the calls of the model are not; another
	// instrumentation may show them.
	hidesModels
)

const hidesAll = hidesTransport | hidesCall | hidesNode | hidesOrchestrator | hidesWorker

// hiddenBy says what the spans of a dialect hide of the steps that hold them.
var hiddenBy = map[string]layerSet{
	"openllmetry-js":       hidesAll | unreliable,
	"langsmith-js":         hidesAll | unreliable,
	"otel-genai-langchain": hidesNode | hidesOrchestrator | hidesWorker, // calls without nodes
	"ai-sdk-7":             hidesCall,
	"mastra":               hidesCall | hidesNode,
	"pydantic-ai":          hidesCall, // a re-prompt inside the library leaves one more call and no mark
	"openai-agents":        hidesCall,
	"crewai":               hidesCall,
	"google-adk":           hidesCall,
	"strands":              hidesCall,
	"instructor":           hidesCall,
	"autogen":              hidesModels,
	"smolagents":           hidesCall,
	"litellm":              hidesCall,
	"client-js":            hidesCall, // a call that failed left no span
	"openllmetry-stream":   hidesCall, // a stream that broke ends well
	"langfuse-stream":      hidesCall,
}

// writeRetries sets the layers of a step.
func (a *account) writeRetries(s *Step, charges *chargeCounts, executions []*execution) {
	var hidden layerSet
	numbered := false
	for _, e := range executions {
		hidden |= e.hidden
		numbered = numbered || e.numbered
	}
	if !numbered { // one span may cover many sends
		hidden |= hidesTransport
	}
	if hidden&hidesModels != 0 && s.Calls == 0 {
		hidden |= hidesCall
	}
	numbers := new([7]int) // one allocation for all
	number := func(l Layer, bit layerSet) *int {
		n := &numbers[chargeAt(string(l))]
		*n = charges.of(string(l))
		if hidden&bit != 0 && (*n == 0 || hidden&unreliable != 0) {
			return nil
		}
		return n
	}
	s.Retries = Retries{
		Transport: number(LayerTransport, hidesTransport), Call: number(LayerCall, hidesCall), Node: number(LayerNode, hidesNode),
		Orchestrator: number(LayerOrchestrator, hidesOrchestrator), Worker: number(LayerWorker, hidesWorker),
	}
	total, known := &numbers[0], false
	for _, n := range []*int{s.Retries.Transport, s.Retries.Call, s.Retries.Node, s.Retries.Orchestrator, s.Retries.Worker} {
		if n != nil {
			*total, known = *total+*n, true
		}
	}
	if known {
		s.RetriesTotal = total
	}
}

// observe notes for every execution what the spans in it hide, and whether its sends are numbered.
func (a *account) observe() {
	dialect, hidden := "", layerSet(0) // of the span before, nearly always the same
	for _, n := range a.tree.nodes {
		if n.exec == nil || n.shadow {
			continue
		}
		if n.Dialect != dialect {
			dialect, hidden = n.Dialect, hiddenBy[n.Dialect]
		}
		n.exec.hidden |= hidden
		if n.isSend() && n.Attempt > 0 || n.ResendCount >= 0 || n.RetryCount >= 0 && (n.isSend() || n.isCall() && Layer(n.RetryLayer) != LayerCall) {
			n.exec.numbered = true
		}
		if n.home != nil && n.home != n.exec {
			n.home.hidden |= hidden
		}
	}
}
