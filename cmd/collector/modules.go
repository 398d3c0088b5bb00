package main

import (
	"runtime/debug"
	"strings"

	"github.com/retryledger/retryledger/internal/release"
)

const ownPath = "github.com/retryledger/retryledger"

// modules knows the versions of the modules that this binary was built from.
type modules map[string]string

func builtModules() modules {
	found := modules{ownPath: "v" + release.Version()}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return found
	}
	for _, dep := range info.Deps {
		found[dep.Path] = dep.Version
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
