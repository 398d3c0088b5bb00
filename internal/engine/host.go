package engine

import (
	"encoding/json"
	"fmt"
	"os"
)

const (
	// HostCommand is the hidden first argument with which the executable is
	// started again as the engine's process: a program that calls Start must
	// hand os.Args[2:] to HostMain when os.Args[1] is HostCommand.
	HostCommand = "engine-host"
	// HostEnv is set in the environment of that process.
	HostEnv = "RETRYLEDGER_ENGINE_HOST"

	// hostSays begins what the host itself writes to its log, between what the
	// engine writes there as to a terminal.
	hostSays = "host: "
)

// IsHost says whether this process was started by Start to be its engine.
func IsHost() bool {
	return os.Getenv(HostEnv) == "1" && len(os.Args) > 2 && os.Args[1] == HostCommand
}

// hostConfig is what the parent tells the host, as a JSON file. It carries no
// password: the host reads that from the data folder.
type hostConfig struct {
	Library      string `json:"library"`
	Config       string `json:"config"`
	Store        string `json:"store"`
	PasswordFile string `json:"password_file"`
	ListenHost   string `json:"listen_host"`
	Port         int    `json:"port"`
	HTTPPort     int    `json:"http_port,omitempty"`
	LogLevel     string `json:"log_level"`
}

func readHostConfig(path string) (hostConfig, error) {
	var c hostConfig
	b, err := os.ReadFile(path)
	if err != nil {
		return c, fmt.Errorf("read the engine's host configuration: %w", err)
	}
	if err := json.Unmarshal(b, &c); err != nil {
		return c, fmt.Errorf("read the engine's host configuration %s: %w", path, err)
	}
	return c, nil
}

// arguments are the command line of ClickHouse, argv[0] first.
//
// It is told to be interactive on the pseudo-terminal that the host gives it.
// Without, it would take any exception that leaves a connection for its own
// failure and abort: one wrong password or one port scan would end the engine
// ("KillingErrorHandler" in ClickHouse's LocalServer.cpp). And so it needs no
// query of its own to stay alive: it waits at its prompt, and the end of the
// terminal is what makes it close its tables and return.
func (c hostConfig) arguments() []string {
	query := "SYSTEM START LISTEN TCP"
	args := []string{"clickhouse",
		"--config-file", c.Config,
		"--path", c.Store,
		"--log-level", c.LogLevel,
		"--listen_host", c.ListenHost,
		"--tcp_port", fmt.Sprint(c.Port),
		"--interactive", "--disable_suggestion", "--highlight", "0",
		"--progress", "off", "--progress-table", "off",
	}
	if c.HTTPPort != 0 {
		args = append(args, "--http_port", fmt.Sprint(c.HTTPPort))
		query += "; SYSTEM START LISTEN HTTP"
	}
	return append(args, "--query", query)
}
