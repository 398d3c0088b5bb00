package cli

import "runtime/debug"

// release is set by the linker for a release: -X …/internal/cli.release=v1.2.3.
var release = ""

// version is the release, or what the Go tool recorded about the build.
func version() string {
	if release != "" {
		return release
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	version := info.Main.Version
	if version == "" || version == "(devel)" {
		version = "devel"
		for _, setting := range info.Settings {
			if setting.Key == "vcs.revision" && len(setting.Value) >= 12 {
				version += "+" + setting.Value[:12]
			}
		}
	}
	return version
}
