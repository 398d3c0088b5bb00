// Package retryledger carries the default configuration of the collector, the
// file otel-collector.yaml beside this one, so that the binary runs without a
// configuration file.
package retryledger

import _ "embed"

// DefaultConfiguration is the text of otel-collector.yaml.
//
//go:embed otel-collector.yaml
var DefaultConfiguration string
