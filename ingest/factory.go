// Package ingest takes spans in: the Collector exporter `retryledger`.
//
// A request is normalised (package dialect) into one narrow row per span, the
// rows are appended to the journal (package journal), and only then is the
// request acknowledged. A writer behind the journal inserts the rows into the
// store, for as long as it takes, and gives their space back.
//
// The exporter helper's sending queue and its retries are not used: a queue in
// memory would acknowledge what a crash loses, a queue on disk would keep the
// spans with their prompts, and a retry here would hold the sender where an
// answer "try again later" lets it keep its own data. The journal is the queue
// and the writer the retry, both behind the acknowledgement.
package ingest

import (
	"context"
	"fmt"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/exporter"
	"go.opentelemetry.io/collector/exporter/exporterhelper"
	"go.uber.org/zap"
)

// Type is the component's type in a configuration.
var Type = component.MustNewType("retryledger")

// NewFactory makes the exporter `retryledger`, for traces.
func NewFactory() exporter.Factory {
	return exporter.NewFactory(Type, createDefaultConfig,
		exporter.WithTraces(createTraces, component.StabilityLevelAlpha))
}

func createTraces(ctx context.Context, set exporter.Settings, cfg component.Config) (exporter.Traces, error) {
	config, ok := cfg.(*Config)
	if !ok {
		return nil, fmt.Errorf("the configuration of %s is a %T", set.ID, cfg)
	}
	e, err := newExporter(set, config)
	if err != nil {
		return nil, err
	}
	// The helper says of each refused request that it is rejected data. It is not lost:
	// its sender has it, and refuse says so, once for many.
	set.Logger = zap.NewNop()
	return exporterhelper.NewTraces(ctx, set, cfg, e.consume,
		exporterhelper.WithStart(e.start),
		exporterhelper.WithShutdown(e.shutdown),
		exporterhelper.WithCapabilities(consumer.Capabilities{MutatesData: false}),
		// How long a sender waits for the disk is the sender's to say.
		exporterhelper.WithTimeout(exporterhelper.TimeoutConfig{Timeout: 0}),
	)
}
