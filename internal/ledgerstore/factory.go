// Package ledgerstore is the Collector extension retryledger_store: it owns the
// place where the ledger is kept. It runs the embedded engine, or reaches the
// server of an endpoint, migrates the schema and hands out connections to the
// components that write and read.
package ledgerstore

import (
	"context"
	"fmt"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/extension"
)

// Type is the name of the extension in a configuration.
var Type = component.MustNewType("retryledger_store")

// NewFactory makes the extension.
func NewFactory() extension.Factory {
	return extension.NewFactory(Type, createDefaultConfig, create, component.StabilityLevelBeta)
}

func create(_ context.Context, settings extension.Settings, config component.Config) (extension.Extension, error) {
	c, ok := config.(*Config)
	if !ok {
		return nil, fmt.Errorf("the extension %s got a configuration of type %T", settings.ID, config)
	}
	return newStore(c, settings), nil
}
