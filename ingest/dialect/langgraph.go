package dialect

import (
	"github.com/tidwall/gjson"

	"github.com/retryledger/retryledger/schema"
)

// What LangGraph and LangChain put into a run's metadata. Every instrumentation of
// them exports the same keys, in its own wrapping; descendants inherit them.

// metadata finds one key of the metadata, as a tolerant JSON value.
type metadata func(key string) gjson.Result

// jsonMetadata is metadata kept as one JSON text.
func jsonMetadata(text string) metadata {
	object := gjson.Parse(text)
	if object.Type == gjson.String { // encoded twice
		object = gjson.Parse(object.String())
	}
	return func(key string) gjson.Result {
		if !object.IsObject() {
			return gjson.Result{}
		}
		return object.Get(key)
	}
}

func (r *reading) readLangGraph(get metadata) {
	row := r.row
	row.Node = clip(get("langgraph_node").String(), schema.MaxName)
	row.TaskKey = clip(get("langgraph_checkpoint_ns").String(), 4*schema.MaxName)
	if v := get("langgraph_step"); v.Exists() {
		if n, ok := wholeText(v.String()); ok && n >= 0 && n < 1<<31 {
			row.GraphStep = int32(n)
		}
	}
	row.GraphRoot = row.Node == "" && isLangGraph(get("ls_integration").String())
	if row.ThreadID == "" {
		for _, key := range []string{"thread_id", "session_id", "conversation_id"} {
			if id := get(key).String(); id != "" {
				row.ThreadID = clip(id, schema.MaxName)
				break
			}
		}
	}
	// Users put anything under run_id; a LangGraph server's stands beside these.
	if id := get("run_id").String(); id != "" && row.RunID == "" && (get("assistant_id").Exists() || get("graph_id").Exists()) {
		row.RunID, row.RunIDRank = clip(id, schema.MaxName), 2
	}
	if m := get("ls_model_name").String(); m != "" && row.Role == schema.RoleModel {
		row.Model = clip(m, schema.MaxName)
	}
	if p := get("ls_provider").String(); p != "" && row.Provider == "" {
		row.Provider = clip(p, schema.MaxName)
	}
}

func isLangGraph(integration string) bool {
	return integration == "langgraph" || integration == "langchain_create_agent"
}
