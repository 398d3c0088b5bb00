// Package alerter is the Collector extension retryledger_alerts: each second it brings
// the signals up to date with the ledger, evaluates the alert rules on them, keeps what
// it saw, and hands what fires to delivery.
//
// Its instants are those of the store's clock. All that it knows is found again after a
// restart: the signals in the ledger, the state of the alerts in a file of the
// collector's folder or, where that is missing, in the transitions of the store.
package alerter

import (
	"context"
	"fmt"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/extension"
)

// Type is the name of the extension in a configuration.
var Type = component.MustNewType("retryledger_alerts")

// NewFactory makes the extension.
func NewFactory() extension.Factory {
	return extension.NewFactory(Type, createDefaultConfig, create, component.StabilityLevelAlpha)
}

func create(_ context.Context, settings extension.Settings, config component.Config) (extension.Extension, error) {
	c, ok := config.(*Config)
	if !ok {
		return nil, fmt.Errorf("the extension %s got a configuration of type %T", settings.ID, config)
	}
	return newAlerter(c, settings), nil
}
