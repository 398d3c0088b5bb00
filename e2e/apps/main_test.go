package apps

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"
)

// collectorBinary is the binary under test, built once.
var collectorBinary string

func TestMain(m *testing.M) {
	flag.Parse()
	if testing.Short() {
		fmt.Println("e2e/apps: left out in short mode")
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
	folder, err = os.MkdirTemp("", "retryledger-apps-")
	if err != nil {
		return "", fmt.Errorf("make a folder for the collector: %w", err)
	}
	collectorBinary = filepath.Join(folder, "collector")
	args := []string{"build", "-buildvcs=false", "-o", collectorBinary}
	if raceDetector {
		args = append(args, "-race")
	}
	cmd := exec.Command("go", append(args, "./cmd/collector")...)
	cmd.Dir = filepath.Join("..", "..")
	if out, err := cmd.CombinedOutput(); err != nil {
		return folder, fmt.Errorf("build the collector: %w\n%s", err, out)
	}
	return folder, nil
}
