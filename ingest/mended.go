package ingest

import (
	"strings"
	"unicode/utf8"

	"github.com/retryledger/retryledger/schema"
)

// mendedIn counts the rows with a text that was no UTF-8: the dialects put U+FFFD in the
// place of what is not. A text that came with it counts too.
func mendedIn(rows []schema.Span) (n int) {
	const mark = string(utf8.RuneError)
	for i := range rows {
		s := &rows[i]
		for _, text := range [...]string{
			s.Service, s.Version, s.Environment, s.Scope, s.Name, s.Step, s.Node, s.RunID, s.ThreadID, s.TaskKey, s.WorkerID,
			s.ErrorClass, s.Model, s.ResponseModel, s.Provider, s.FinishReason, s.RetryLayer, s.FallbackFrom, s.FallbackTo, s.FallbackReason,
		} {
			if text != "" && strings.Contains(text, mark) {
				n++
				break
			}
		}
	}
	return n
}
