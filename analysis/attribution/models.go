package attribution

import (
	"regexp"

	"github.com/retryledger/retryledger/schema"
)

// modelNames are the names under which models were asked for in a run. Some
// instrumentations state one name only: of a failed call the requested one, of a good
// call the response's, which may be the requested one with a date or a version added.
type modelNames map[string]bool

// onlyResponse tells whether the one name that s states may be the response's.
func onlyResponse(s *schema.Span) bool { return !s.Failed && s.Model == s.ResponseModel }

// modelVersion is what a response adds to a requested name: a date or a version's
// number (`-2024-08-06`, `-20250514`, `-001`, `@20240620`).
var modelVersion = regexp.MustCompile(`[-@:](?:\d{3,8}|\d{4}-\d{2}-\d{2})$`)

// requested is the model that s asked for: a response's name is the requested one
// where another call of the run asked for it without the version.
func (names modelNames) requested(s *schema.Span) string {
	if onlyResponse(s) && !names[s.Model] {
		if plain := modelVersion.ReplaceAllString(s.Model, ""); names[plain] {
			return plain
		}
	}
	return s.Model
}
