// Package collectortest lets tests build the programs that users get, run the collector
// as they do, and ask its API.
package collectortest

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"
)

const module = "github.com/retryledger/retryledger"

// folder holds the programs under test, built once.
var folder string

// Program is the file of a program under test, "collector" or "retryledger".
func Program(name string) string { return filepath.Join(folder, name) }

// Main is the TestMain of a package whose tests run the collector: it builds the programs
// as the tests are built, with the race detector or without, and ends the process. In
// short mode no test runs.
func Main(m *testing.M) {
	flag.Parse()
	if testing.Short() {
		fmt.Println("tests of the whole collector are left out in short mode")
		os.Exit(0)
	}
	os.Exit(run(m))
}

func run(m *testing.M) (code int) {
	if err := build(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() {
		if err := os.RemoveAll(folder); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}()
	if code = m.Run(); code != 0 {
		return code
	}
	http.DefaultClient.CloseIdleConnections()
	if err := goleak.Find(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func build() (err error) {
	folder, err = os.MkdirTemp("", "retryledger-test-")
	if err != nil {
		return fmt.Errorf("make a folder for the programs: %w", err)
	}
	args := []string{"build", "-buildvcs=false", "-o", folder + string(filepath.Separator)}
	if RaceDetector {
		args = append(args, "-race")
	}
	cmd := exec.CommandContext(context.Background(), "go", append(args, module+"/cmd/collector", module+"/cmd/retryledger")...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build the programs: %w\n%s", err, out)
	}
	return nil
}
