package release

import (
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestVersion(t *testing.T) {
	t.Parallel()
	commit := []debug.BuildSetting{{Key: "vcs", Value: "git"}, {Key: "vcs.revision", Value: "cbfbbc17b4a10123456789abcdef0123456789ab"}}
	for _, c := range []struct {
		module, linked string
		settings       []debug.BuildSetting
		want           string
	}{
		{"", "", nil, "0.1.0-dev"},
		{"(devel)", "", commit, "0.1.0-dev+cbfbbc17b4a1"},
		{"v0.0.0-20261130164500-cbfbbc17b4a1+dirty", "", commit, "0.1.0-dev+cbfbbc17b4a1"},
		{"v1.2.3", "", nil, "1.2.3"},
		{"v1.2.4-0.20261130164500-cbfbbc17b4a1", "", commit, "1.2.4-0.20261130164500-cbfbbc17b4a1"},
		{"(devel)", "v1.2.3", commit, "1.2.3"},
		{"(devel)", "1.2.3", nil, "1.2.3"},
	} {
		assert.Equal(t, c.want, versionOf(&debug.BuildInfo{Main: debug.Module{Version: c.module}, Settings: c.settings}, c.linked), "%q %q", c.module, c.linked)
	}
}
