package e2e

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"
)

// The binaries under test, built once.
var collectorBinary, retryledgerBinary string

func TestMain(m *testing.M) {
	flag.Parse()
	if testing.Short() {
		fmt.Println("e2e: left out in short mode")
		return
	}
	folder, err := build()
	code := 1
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	} else if code = m.Run(); code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	if err := os.RemoveAll(folder); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(code)
}

func build() (folder string, err error) {
	folder, err = os.MkdirTemp("", "retryledger-e2e-")
	if err != nil {
		return "", fmt.Errorf("make a folder for the binaries: %w", err)
	}
	args := []string{"build", "-buildvcs=false", "-o", folder + string(filepath.Separator)}
	if raceDetector {
		args = append(args, "-race")
	}
	cmd := exec.Command("go", append(args, "./cmd/collector", "./cmd/retryledger")...)
	cmd.Dir = ".."
	if out, err := cmd.CombinedOutput(); err != nil {
		return folder, fmt.Errorf("build the binaries: %w\n%s", err, out)
	}
	collectorBinary = filepath.Join(folder, "collector")
	retryledgerBinary = filepath.Join(folder, "retryledger")
	return folder, nil
}
