// Package demo holds captures of real applications that the demo sends, so that the
// first answer needs no application of one's own.
package demo

import (
	"embed"
	"fmt"
	"io/fs"
	"path"
	"time"

	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/retryledger/retryledger/internal/otlpfile"
	"github.com/retryledger/retryledger/internal/replay"
)

//go:embed captures
var captures embed.FS

// Story is one capture and what happened in its application.
type Story struct {
	Name string // of its folder; its service is "demo-" and this
	Tale string
}

// Stories are what the demo sends, the one whose ladder it shows first.
var Stories = []Story{
	{"seven-of-three", "Python, LangGraph: the config says 3 attempts, a recovery edge enters the node again, it runs 7 times"},
	{"nested-retries", "JavaScript, LangGraph: 3 attempts of the model inside 3 of the node, 9 calls, all lost"},
	{"client-retries", "JavaScript, LangChain withRetry: two failed calls, then an answer"},
	{"retry-then-fallback", "JavaScript, LangChain: a model fails 3 times, another one answers"},
	{"breaker-fallback", "Go, gobreaker: an open breaker sends every call to the fallback"},
	{"two-retry-loops", "Java, Resilience4j: a loop around a retry policy, neither knows of the other"},
	{"contract-violation", "Python: nodes that miss keys of their contract, while the run goes on"},
	{"incomplete", "JavaScript: the run itself says that it left steps undone"},
	{"killed", "JavaScript: the process was killed, the root span never came"},
}

// Service is the service.name that the story is sent under.
func (s Story) Service() string { return "demo-" + s.Name }

// Requests reads the story's export requests with fresh ids, its last span ending at
// lastEnd.
func (s Story) Requests(identities replay.Identities, lastEnd time.Time) ([]ptrace.Traces, error) {
	folder := path.Join("captures", s.Name)
	entries, err := fs.ReadDir(captures, folder)
	if err != nil {
		return nil, fmt.Errorf("read the demo's capture %s: %w", s.Name, err)
	}
	var requests []ptrace.Traces
	for _, entry := range entries {
		file, err := captures.Open(path.Join(folder, entry.Name()))
		if err != nil {
			return nil, fmt.Errorf("read the demo's capture %s: %w", s.Name, err)
		}
		_, err = otlpfile.Read(file, otlpfile.DefaultLimit, func(td ptrace.Traces) error {
			requests = append(requests, td)
			return nil
		})
		_ = file.Close()
		if err != nil {
			return nil, fmt.Errorf("read the demo's capture %s: %w", s.Name, err)
		}
	}
	replay.Rewrite(requests, identities, lastEnd, s.Service())
	return requests, nil
}
