package attribution_test

import (
	"encoding/json"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryledger/retryledger/analysis/attribution"
)

// TestTheSampleInTheDocsHasEveryField: the sample of docs/accounting.md has every field
// of the answer and no other; one that the answer may leave out may stand in the text.
func TestTheSampleInTheDocsHasEveryField(t *testing.T) {
	text, err := os.ReadFile("../../docs/accounting.md")
	require.NoError(t, err)
	_, after, found := strings.Cut(string(text), "```json\n")
	require.True(t, found)
	sample, prose, found := strings.Cut(after, "```\n")
	require.True(t, found)
	var document any
	require.NoError(t, json.Unmarshal([]byte(sample), &document))
	shown := make(map[string]bool)
	var show func(at string, value any)
	show = func(at string, value any) {
		switch v := value.(type) {
		case map[string]any:
			for key, member := range v {
				shown[at+"."+key] = true
				show(at+"."+key, member)
			}
		case []any:
			for _, element := range v {
				show(at, element)
			}
		}
	}
	show("", document)

	written := make(map[string]bool)
	var field func(at string, of reflect.Type)
	field = func(at string, of reflect.Type) {
		for of.Kind() == reflect.Slice || of.Kind() == reflect.Pointer {
			of = of.Elem()
		}
		if of.Kind() != reflect.Struct {
			return
		}
		for i := range of.NumField() {
			name, options, _ := strings.Cut(of.Field(i).Tag.Get("json"), ",")
			if name == "-" {
				continue
			}
			path := at + "." + name
			written[path] = true
			if options == "omitempty" && !shown[path] {
				assert.Contains(t, prose, "`"+name+"`", path)
				continue
			}
			assert.True(t, shown[path], "%s is not in the sample", path)
			field(path, of.Field(i).Type)
		}
	}
	field("", reflect.TypeFor[attribution.Ledger]())
	for path := range shown {
		assert.True(t, written[path], "%s is in the sample alone", path)
	}
}
