package dialect

import (
	"strings"

	"github.com/retryledger/retryledger/schema"
)

// Temporal: one RunActivity span per attempt, no number. What all attempts of one
// activity share is its id within the workflow's run.
var temporal = instrumentation{
	name:   "temporal",
	scopes: []string{"temporal-sdk-go", "temporalio", "@temporalio/"},
	marks:  []string{"temporalWorkflowID"},
	read:   (*reading).readTemporal,
}

func (r *reading) readTemporal() {
	row, a := r.row, r.attrs
	kind, name, _ := strings.Cut(row.Name, ":")
	row.ThreadID = orElse(row.ThreadID, clip(a.text("temporalWorkflowID"), schema.MaxName))
	switch kind {
	case "RunActivity":
		row.Role, row.Node, row.NodeRun = schema.RoleChain, clip(name, schema.MaxName), schema.FlagYes
		// An activity's id is unique within one run of the workflow only. The run's part
		// names no task (it has no colon), so that it stands for no step.
		row.TaskKey = clip(a.text("temporalRunID"), schema.MaxName) + "|" + row.Node + ":" + clip(a.text("temporalActivityID"), schema.MaxName)
	case "RunWorkflow", "RunChildWorkflow":
		row.Role = schema.RoleChain
	}
}
