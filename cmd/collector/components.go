package main

import (
	"errors"
	"io"

	"github.com/open-telemetry/opentelemetry-collector-contrib/extension/basicauthextension"
	"github.com/open-telemetry/opentelemetry-collector-contrib/extension/bearertokenauthextension"
	"github.com/open-telemetry/opentelemetry-collector-contrib/extension/healthcheckextension"
	"github.com/open-telemetry/opentelemetry-collector-contrib/processor/attributesprocessor"
	"github.com/open-telemetry/opentelemetry-collector-contrib/processor/filterprocessor"
	"github.com/open-telemetry/opentelemetry-collector-contrib/processor/redactionprocessor"
	"github.com/open-telemetry/opentelemetry-collector-contrib/processor/resourceprocessor"
	"github.com/open-telemetry/opentelemetry-collector-contrib/processor/transformprocessor"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/exporter"
	"go.opentelemetry.io/collector/exporter/debugexporter"
	"go.opentelemetry.io/collector/exporter/otlpexporter"
	"go.opentelemetry.io/collector/exporter/otlphttpexporter"
	"go.opentelemetry.io/collector/extension"
	"go.opentelemetry.io/collector/otelcol"
	"go.opentelemetry.io/collector/processor"
	"go.opentelemetry.io/collector/processor/batchprocessor"
	"go.opentelemetry.io/collector/processor/memorylimiterprocessor"
	"go.opentelemetry.io/collector/receiver"
	"go.opentelemetry.io/collector/receiver/otlpreceiver"
	"go.opentelemetry.io/collector/service/telemetry/otelconftelemetry"

	"github.com/retryledger/retryledger/alerts/alerter"
	"github.com/retryledger/retryledger/analysis/api"
	"github.com/retryledger/retryledger/analysis/attributor"
	"github.com/retryledger/retryledger/ingest"
	"github.com/retryledger/retryledger/ingest/admission"
	"github.com/retryledger/retryledger/internal/ledgerstore"
)

const (
	coreModule    = "go.opentelemetry.io/collector/"
	contribModule = "github.com/open-telemetry/opentelemetry-collector-contrib/"
)

// registered is a component with the package it comes from.
type registered[F component.Factory] struct {
	factory F
	from    string
}

// factories are the components of this distribution. The ready message goes to stdout.
func factories(built modules, stdout io.Writer) (otelcol.Factories, error) {
	f := otelcol.Factories{Telemetry: otelconftelemetry.NewFactory()}
	var errs [4]error
	f.Receivers, f.ReceiverModules, errs[0] = register(built, []registered[receiver.Factory]{
		{otlpreceiver.NewFactory(), coreModule + "receiver/otlpreceiver"},
	})
	f.Processors, f.ProcessorModules, errs[1] = register(built, []registered[processor.Factory]{
		{memorylimiterprocessor.NewFactory(), coreModule + "processor/memorylimiterprocessor"},
		{batchprocessor.NewFactory(), coreModule + "processor/batchprocessor"},
		{attributesprocessor.NewFactory(), contribModule + "processor/attributesprocessor"},
		{filterprocessor.NewFactory(), contribModule + "processor/filterprocessor"},
		{redactionprocessor.NewFactory(), contribModule + "processor/redactionprocessor"},
		{resourceprocessor.NewFactory(), contribModule + "processor/resourceprocessor"},
		{transformprocessor.NewFactory(), contribModule + "processor/transformprocessor"},
	})
	f.Exporters, f.ExporterModules, errs[2] = register(built, []registered[exporter.Factory]{
		{debugexporter.NewFactory(), coreModule + "exporter/debugexporter"},
		{ingest.NewFactory(), ownPath + "/ingest"},
		{otlpexporter.NewFactory(), coreModule + "exporter/otlpexporter"},
		{otlphttpexporter.NewFactory(), coreModule + "exporter/otlphttpexporter"},
	})
	f.Extensions, f.ExtensionModules, errs[3] = register(built, []registered[extension.Factory]{
		{admission.TellRefusals(basicauthextension.NewFactory()), contribModule + "extension/basicauthextension"},
		{admission.TellRefusals(bearertokenauthextension.NewFactory()), contribModule + "extension/bearertokenauthextension"},
		{healthcheckextension.NewFactory(), contribModule + "extension/healthcheckextension"},
		{admission.NewFactory(), ownPath + "/ingest/admission"},
		{ledgerstore.NewFactory(), ownPath + "/internal/ledgerstore"},
		{attributor.NewFactory(), ownPath + "/analysis/attributor"},
		{api.NewFactory(), ownPath + "/analysis/api"},
		{alerter.NewFactory(), ownPath + "/alerts/alerter"},
		{newConsoleFactory(stdout), ownPath + "/cmd/collector"},
		{newDoorsFactory(), ownPath + "/cmd/collector"},
	})
	return f, errors.Join(errs[:]...)
}

func register[F component.Factory](built modules, list []registered[F]) (map[component.Type]F, map[component.Type]string, error) {
	components := make([]F, len(list))
	from := make(map[component.Type]string, len(list))
	for i, r := range list {
		components[i] = r.factory
		from[r.factory.Type()] = built.describe(r.from)
	}
	byType, err := otelcol.MakeFactoryMap(components...)
	return byType, from, err
}
