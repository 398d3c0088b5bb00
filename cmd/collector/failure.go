package main

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"go.uber.org/zap/zapcore"
)

// explain returns what to print last about a command that failed: a sentence that
// says how to mend it. Components say so in their own errors; what they leave to the
// operating system's words is explained here.
func explain(err error, config *effectiveConfig) string {
	if errors.Is(err, syscall.EADDRINUSE) {
		return explainPort(err, config)
	}
	text := err.Error()
	// Which stage of the Collector's start it was helps nobody.
	for _, stage := range []string{"failed to start extensions: ", "cannot start pipelines: ",
		"failed to get config: cannot resolve the configuration: cannot convert the confmap.Conf: "} {
		text = strings.TrimPrefix(text, stage)
	}
	if strings.Contains(text, "unknown command") {
		text += "\n\"collector --help\" lists the commands."
	}
	return "Error: " + text
}

func explainPort(err error, config *effectiveConfig) string {
	var op *net.OpError
	if !errors.As(err, &op) || op.Addr == nil {
		return "A port is taken by another program. Stop that program, or give the collector another port with --set."
	}
	address := op.Addr.String()
	host, port, splitErr := net.SplitHostPort(address)
	number, numberErr := strconv.Atoi(port)
	if splitErr != nil || numberErr != nil {
		return fmt.Sprintf("Address %s is taken by another program.", address)
	}
	settings := slices.Sorted(maps.Keys(config.settingsOfPort(port)))
	if len(settings) == 0 {
		return fmt.Sprintf("Port %s is taken by another program, perhaps another collector. Stop it, or give this one another port.", address)
	}
	return fmt.Sprintf("Port %s is taken by another program, perhaps another collector. Stop it, or give this one another port: --set=%s=%s",
		address, settings[0], net.JoinHostPort(host, strconv.Itoa(anotherPort(number))))
}

// anotherPort suggests a port: ten thousand higher, or lower where that is none.
func anotherPort(port int) int {
	if port+10000 > 65535 {
		return port - 10000
	}
	return port + 10000
}

// withoutStartFailures leaves out the Collector's log of a component that could not
// start: run prints the same error last, so that a person reads it once.
type withoutStartFailures struct{ zapcore.Core }

func (c withoutStartFailures) With(fields []zapcore.Field) zapcore.Core {
	return withoutStartFailures{c.Core.With(fields)}
}

func (c withoutStartFailures) Check(entry zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	switch entry.Message {
	case "Failed to start extension", "Failed to start component":
		return checked
	}
	return c.Core.Check(entry, checked)
}
