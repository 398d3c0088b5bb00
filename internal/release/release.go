// Package release says which release a program is.
package release

import (
	"runtime/debug"
	"strings"
)

// next is the release that main is on the way to.
const next = "0.1.0-dev"

// linked is set by the linker for a release: -X …/internal/release.linked=1.2.3.
var linked = ""

// Version is that of the release, such as 1.2.3; of a build between releases the next one's
// with "-dev", and the commit where the Go tool recorded it, such as 0.1.0-dev+cbfbbc17b4a1.
func Version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = &debug.BuildInfo{}
	}
	return versionOf(info, linked)
}

func versionOf(info *debug.BuildInfo, linked string) string {
	if linked != "" {
		return strings.TrimPrefix(linked, "v")
	}
	// The Go tool calls a commit without a tag before it v0.0.0-….
	if v := info.Main.Version; v != "" && v != "(devel)" && !strings.HasPrefix(v, "v0.0.0-") {
		return strings.TrimPrefix(v, "v")
	}
	const digits = 12
	for _, setting := range info.Settings {
		if setting.Key == "vcs.revision" && len(setting.Value) >= digits {
			return next + "+" + setting.Value[:digits]
		}
	}
	return next
}
