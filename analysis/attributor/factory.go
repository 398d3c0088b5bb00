// Package attributor is the Collector extension retryledger_attribution: it finds
// the runs that received spans, accounts for them and replaces their ledger.
//
// It keeps no state that a restart could lose: what is to be done is found by
// comparing the spans of the store with its ledger. Any number of attributors may
// work on one store; the ledger's versions decide, and the account that has read
// more wins.
package attributor

import (
	"context"
	"fmt"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/extension"
)

// Type is the name of the extension in a configuration.
var Type = component.MustNewType("retryledger_attribution")

// NewFactory makes the extension.
func NewFactory() extension.Factory {
	return extension.NewFactory(Type, createDefaultConfig, create, component.StabilityLevelBeta)
}

func create(_ context.Context, settings extension.Settings, config component.Config) (extension.Extension, error) {
	c, ok := config.(*Config)
	if !ok {
		return nil, fmt.Errorf("the extension %s got a configuration of type %T", settings.ID, config)
	}
	return newAttributor(c, settings)
}
