package dialect

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/retryledger/retryledger/schema"
)

func TestTheInputOfAModelLeavesTheModelOut(t *testing.T) {
	hash := func(role schema.Role, text string) uint64 {
		r := &reading{row: &schema.Span{Role: role}}
		r.hasInput(text)
		return r.row.InputHash
	}
	one := hash(schema.RoleModel, `{"model": "a", "messages": [{"role": "user", "content": "hello"}]}`)
	assert.Equal(t, one, hash(schema.RoleModel, `{"messages": [{"role": "user", "content": "hello"}], "model": "b"}`))
	assert.NotEqual(t, one, hash(schema.RoleModel, `{"model": "a", "messages": [{"role": "user", "content": "bye"}]}`))
	assert.NotEqual(t, one, hash(schema.RoleModel, `{"model": "a", "messages": [{"role": "user", "content": "hello"}], "temperature": 1}`))
	assert.NotEqual(t, hash(schema.RoleTool, `{"model": "a"}`), hash(schema.RoleTool, `{"model": "b"}`), "a tool may be given a model")
	for _, text := range []string{`{"model": "a"}`, `{}`, `{"model": `, "hello", "[1]"} {
		assert.NotZero(t, hash(schema.RoleModel, text), text)
	}
	assert.NotEqual(t, hash(schema.RoleModel, `{"model": "a`), hash(schema.RoleModel, `{"model": "b`), "no JSON: as it is")
	assert.Zero(t, hash(schema.RoleModel, ""))
}
