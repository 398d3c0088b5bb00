// Package api is the Collector extension retryledger_api: the HTTP API that the
// command line asks. Its JSON is that of packages answer and attribution.
//
//	GET /api/v1/top        steps by retry consumption: since, until, service, limit
//	GET /api/v1/runs       runs: since, until, service, completion, quarantined, over_budget, limit
//	GET /api/v1/runs/{id}  one run with its ladder; id is a run id, a trace id, or the beginning of one
//	GET /api/v1/status     what is stored and how far attribution has come
//
// since and until are RFC 3339 instants, or how long ago (90m, 24h, 7d). An answer
// other than 200 is {"error": sentence}, and for an ambiguous id "candidates" too.
package api

import (
	"context"
	"fmt"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/extension"
)

var componentType = component.MustNewType("retryledger_api")

// NewFactory creates the factory of the API extension.
func NewFactory() extension.Factory {
	return extension.NewFactory(componentType, createDefaultConfig, create, component.StabilityLevelAlpha)
}

func create(_ context.Context, settings extension.Settings, config component.Config) (extension.Extension, error) {
	c, ok := config.(*Config)
	if !ok {
		return nil, fmt.Errorf("create the API: its configuration is a %T", config)
	}
	return newServer(c, settings), nil
}
