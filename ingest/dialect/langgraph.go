package dialect

import (
	"strings"

	"github.com/tidwall/gjson"
	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/retryledger/retryledger/schema"
)

// What LangGraph and LangChain put into a run's metadata. Every instrumentation of
// them exports the same keys, in its own wrapping; descendants inherit them.

// metadata finds one key of the metadata, as a tolerant JSON value.
type metadata func(key string) gjson.Result

// jsonMetadata is metadata kept in one attribute: JSON text, JSON of JSON, Python's
// text of a dict, or a map.
func (r *reading) jsonMetadata(key string) metadata {
	text := r.attrs.text(key)
	if v, ok := r.attrs.m.Get(key); ok && v.Type() == pcommon.ValueTypeMap {
		text = v.AsString()
	}
	object := gjson.Parse(text)
	if object.Type == gjson.String { // encoded twice
		text = object.String()
		object = gjson.Parse(text)
	}
	if strings.HasPrefix(text, "{'") {
		object = gjson.Parse(jsonOfPython(text))
	}
	return func(key string) gjson.Result {
		if !object.IsObject() {
			return gjson.Result{}
		}
		return object.Get(key)
	}
}

// jsonOfPython writes Python's text of a dict of plain values as JSON.
func jsonOfPython(text string) string {
	var b strings.Builder
	for i := 0; i < len(text); {
		quote := text[i]
		if quote != '\'' && quote != '"' {
			word := 0
			for word < len(text)-i && isWord(text[i+word]) {
				word++
			}
			switch part := text[i : i+max(1, word)]; part {
			case "True", "False":
				b.WriteString(strings.ToLower(part))
			case "None":
				b.WriteString("null")
			default:
				b.WriteString(part)
			}
			i += max(1, word)
			continue
		}
		b.WriteByte('"')
		for i++; i < len(text) && text[i] != quote; i++ {
			switch {
			case text[i] == '\\' && i+1 < len(text) && text[i+1] == '\'':
				i++
				b.WriteByte('\'')
			case text[i] == '\\' && i+1 < len(text):
				b.WriteString(text[i : i+2])
				i++
			case text[i] == '"':
				b.WriteString(`\"`)
			default:
				b.WriteByte(text[i])
			}
		}
		b.WriteByte('"')
		i++
	}
	return b.String()
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
