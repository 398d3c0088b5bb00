package rules

import (
	_ "embed"
	"sync"
)

// DefaultPack is the file of the rules that are evaluated without any file, with its
// comments.
//
//go:embed default.yaml
var DefaultPack []byte

var defaultSpecs = sync.OnceValue(func() *file {
	f, err := parseFile("default.yaml", DefaultPack)
	if err != nil {
		panic(err) // a test loads it
	}
	return f
})

// Default is the default pack as it is.
func Default() *Set {
	set, err := Load("default.yaml", []byte("{}"))
	if err != nil {
		panic(err) // a test loads it
	}
	return set
}
