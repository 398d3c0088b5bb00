package dialect

import (
	"strings"

	"github.com/cespare/xxhash/v2"
	"github.com/tidwall/gjson"

	"github.com/retryledger/retryledger/schema"
)

// modelKeys are the members of a request that say which model is asked.
var modelKeys = map[string]bool{"model": true, "model_name": true, "modelName": true, "model_id": true, "modelId": true}

// hasInput sets the hash of what a span was given, by which attempts of one thing are told
// from attempts of another. The request of a model is taken without the model's name, for
// a fallback asks another one the same.
func (r *reading) hasInput(text string) {
	if text == "" {
		return
	}
	if r.row.Role != schema.RoleModel || !strings.HasPrefix(text, "{") || !gjson.Valid(text) {
		r.row.InputHash = xxhash.Sum64String(text) | 1
		return
	}
	digest := xxhash.New()
	gjson.Parse(text).ForEach(func(key, value gjson.Result) bool {
		if !modelKeys[key.Str] {
			_, _ = digest.WriteString(key.Raw)
			_, _ = digest.WriteString(value.Raw)
		}
		return true
	})
	r.row.InputHash = digest.Sum64() | 1
}
