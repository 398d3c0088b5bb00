package main

import (
	"runtime/debug"
	"strings"
)

// version is that of the module where the module system knows it, and can be
// set with -ldflags "-X main.version=…".
var version = "0.1.0-dev"

const ownPath = "github.com/retryledger/retryledger"

// modules knows the versions of the modules that this binary was built from.
type modules map[string]string

func builtModules() modules {
	found := modules{}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return found
	}
	for _, dep := range info.Deps {
		found[dep.Path] = dep.Version
	}
	if v := info.Main.Version; info.Main.Path == ownPath && v != "" && v != "(devel)" && !strings.HasPrefix(v, "v0.0.0-") {
		found[ownPath] = v
	} else {
		found[ownPath] = "v" + version
	}
	return found
}

// describe is "path version" for the module that holds the package, as the
// Collector's "components" prints it.
func (m modules) describe(pkg string) string {
	for path := pkg; path != "."; {
		if v, ok := m[path]; ok {
			return pkg + " " + v
		}
		cut := strings.LastIndexByte(path, '/')
		if cut < 0 {
			break
		}
		path = path[:cut]
	}
	return pkg
}
