package attribution_test

// One test for each rule of docs/dialects.md, "What reading real spans takes", by the
// rule's number: spans as instrumentations write them, read by their dialects.

const lost429 = `RateLimitError("Error code: 429 - {'error': 1}")Traceback (most recent call last):`

// ask is a graph with one node around the given spans, in OpenInference's words.
func ask(inside ...sent) []sent {
	return append([]sent{
		{id: 0, parent: -1, name: "LangGraph", from: 0, to: 1000, ok: true, attrs: oi("CHAIN", "", "", 0)},
		{id: 1, parent: 0, name: "ask", from: 1, to: 900, ok: true, attrs: oi("CHAIN", "ask", "ask:1", 1)},
	}, inside...)
}

func llm(id, parent int, from, to int64, model string, more ...attrs) sent {
	return sent{id: id, parent: parent, name: "ChatModel", from: from, to: to, ok: true, attrs: oi("LLM", "ask", "ask:1", 1, append(more, attrs{"model": model, "llm.token_count.prompt": 120, "llm.token_count.completion": 35})...)}
}

func badLLM(id, parent int, from, to int64, model string) sent {
	return sent{id: id, parent: parent, name: "ChatModel", from: from, to: to, failed: true, message: lost429, attrs: oi("LLM", "ask", "ask:1", 1, attrs{"model": model})}
}

func chain(id, parent int, name string, from, to int64, failed bool) sent {
	return sent{id: id, parent: parent, name: name, from: from, to: to, ok: !failed, failed: failed, message: map[bool]string{true: lost429}[failed], attrs: oi("CHAIN", "ask", "ask:1", 1)}
}
