package attribution

import (
	"slices"

	"github.com/retryledger/retryledger/schema"
)

// runFacts is what the spans of a run say of it as a whole, gathered while they are
// planted: to look at every row again for each costs a large run more than its account.
type runFacts struct {
	speaking []*schema.Span // that state a flag, a limit, a delivery or a wish for review, in time's order
	dialects []string       // in the order they came
	models   modelNames     // asked for
	lastEnd  int64
	sampled  bool // a span says that its source was sampled

	service, version, environment string // of the first span that names a service
	thread                        string // of the first span that names one

	before    *schema.Span
	lastModel string
}

func (f *runFacts) gather(s *schema.Span) {
	f.lastEnd = max(f.lastEnd, s.EndNs)
	f.sampled = f.sampled || s.Sampled
	if s.Complete != schema.FlagUnset || s.RunCancelled || s.RunLimit > 0 || s.StepLimit > 0 || s.BudgetExhausted || s.RunAttempt > 0 || s.NeedsReview {
		f.speaking = append(f.speaking, s)
	}
	if f.service == "" && s.Service != "" {
		f.service, f.version, f.environment = s.Service, s.Version, s.Environment
	}
	if f.thread == "" {
		f.thread = s.ThreadID
	}
	if (f.before == nil || f.before.Dialect != s.Dialect) && !slices.Contains(f.dialects, s.Dialect) {
		f.dialects = append(f.dialects, s.Dialect)
	}
	f.before = s
	if s.Role == schema.RoleModel && s.Model != "" && s.Model != f.lastModel && !onlyResponse(s) {
		if f.models == nil {
			f.models = make(modelNames)
		}
		f.models[s.Model] = true
		f.lastModel = s.Model
	}
}
