// Package capturetest judges a ledger against the captures of real applications
// in testdata/captures, whose truth was counted inside the application or its mock
// server and never from spans.
package capturetest

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
)

// Capture is one recorded execution of an application.
type Capture struct {
	Instrumentation string
	Scenario        string
	Files           []string // OTLP requests in the order of arrival
	Truth           Truth
}

// Cell names the capture as "instrumentation/scenario".
func (c Capture) Cell() string { return c.Instrumentation + "/" + c.Scenario }

// Truth is what the application counted.
type Truth struct {
	Runs               []TrueRun           `json:"runs"`
	Steps              map[string]TrueStep `json:"steps"`
	ContractViolations []json.RawMessage   `json:"contract_violations"`
}

// TrueRun is one run as the application saw it.
type TrueRun struct {
	Run      string `json:"run"`
	Outcome  string `json:"outcome"`  // ok, error, handled_error, killed, running, cancelled, abandoned
	Complete *bool  `json:"complete"` // only where the application sets a flag
	// Redone are steps that a later run of the same work had to execute again: the worker layer.
	Redone map[string]int `json:"cross_run_orchestrator_retries"`
}

// TrueStep is one step's numbers over all runs of a capture.
type TrueStep struct {
	Kind       string         `json:"kind"` // retry, loop, fanout, resume, single or container
	Executions int            `json:"executions"`
	Retries    map[string]int `json:"retries_by_layer"` // client (the call layer), node, orchestrator, transport
	Fallbacks  int            `json:"fallbacks"`
	Calls      int            `json:"model_calls"`
	Failed     int            `json:"model_calls_failed"`
	ToolCalls  *int           `json:"tool_calls"`
	HTTPCalls  *int           `json:"http_calls"`
	Tokens     struct {
		Input  int `json:"input"`
		Output int `json:"output"`
	} `json:"tokens"`
}

var requestFile = regexp.MustCompile(`^\d+\.(pb|json)(\.gz)?$`)

// All reads every capture below testdata/captures of the module, sorted by cell.
func All(t testing.TB) []Capture {
	t.Helper()
	root := filepath.Join(moduleRoot(t), "testdata", "captures")
	truths, err := filepath.Glob(filepath.Join(root, "*", "*", "truth.json"))
	if err != nil || len(truths) == 0 {
		t.Fatalf("no captures below %s (%v)", root, err)
	}
	slices.Sort(truths)
	var captures []Capture
	for _, path := range truths {
		folder := filepath.Dir(path)
		capture := Capture{Instrumentation: filepath.Base(filepath.Dir(folder)), Scenario: filepath.Base(folder)}
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatalf("read the truth of %s: %v", capture.Cell(), err)
		}
		if err := json.Unmarshal(content, &capture.Truth); err != nil {
			t.Fatalf("read the truth of %s: %v", capture.Cell(), err)
		}
		entries, err := os.ReadDir(folder)
		if err != nil {
			t.Fatalf("list %s: %v", capture.Cell(), err)
		}
		for _, entry := range entries {
			if requestFile.MatchString(entry.Name()) {
				capture.Files = append(capture.Files, filepath.Join(folder, entry.Name()))
			}
		}
		if len(capture.Files) > 0 { // killed before its first export: nothing arrived
			captures = append(captures, capture)
		}
	}
	return captures
}

// Folders narrows captures to those of some instrumentations.
func Folders(captures []Capture, instrumentations ...string) []Capture {
	return slices.DeleteFunc(captures, func(c Capture) bool { return !slices.Contains(instrumentations, c.Instrumentation) })
}

// One reads the capture of one cell, such as "openinference/c_nested_9".
func One(t testing.TB, cell string) Capture {
	t.Helper()
	for _, capture := range All(t) {
		if capture.Cell() == cell {
			return capture
		}
	}
	t.Fatalf("no capture %s", cell)
	return Capture{}
}

// moduleRoot is the folder that holds go.mod, from wherever the test runs.
func moduleRoot(t testing.TB) string {
	t.Helper()
	folder, err := os.Getwd()
	if err != nil {
		t.Fatalf("find the module: %v", err)
	}
	for {
		if _, err := os.Stat(filepath.Join(folder, "go.mod")); err == nil {
			return folder
		}
		parent := filepath.Dir(folder)
		if parent == folder {
			t.Fatal(fmt.Errorf("find the module: no go.mod above the test"))
		}
		folder = parent
	}
}
