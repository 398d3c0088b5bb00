// Command generate writes the dashboards into json/, next to the package that makes
// them: go generate ./dashboards
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/retryledger/retryledger/dashboards"
)

func main() {
	if err := write("json"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// write replaces the JSON files of folder by what the programs make now.
func write(folder string) error {
	files, err := dashboards.Build()
	if err != nil {
		return err
	}
	old, err := filepath.Glob(filepath.Join(folder, "*.json"))
	if err != nil {
		return err
	}
	for _, name := range old {
		if err := os.Remove(name); err != nil {
			return err
		}
	}
	for _, file := range files {
		if err := os.WriteFile(filepath.Join(folder, file.Name), file.JSON, 0o644); err != nil { //nolint:gosec // it is source
			return err
		}
	}
	return nil
}
