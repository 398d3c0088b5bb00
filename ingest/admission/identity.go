package admission

import (
	"context"
	"fmt"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/extension"
	"go.opentelemetry.io/collector/extension/extensionauth"
	"go.opentelemetry.io/otel/metric"
	"go.uber.org/zap"

	"github.com/retryledger/retryledger/internal/seldom"
)

// TellRefusals is the factory of an authentication extension that counts, and tells now and
// then, whom it turns away: receivers and the API answer them, and say nothing of it.
func TellRefusals(of extension.Factory) extension.Factory {
	return extension.NewFactory(of.Type(), of.CreateDefaultConfig,
		func(ctx context.Context, settings extension.Settings, config component.Config) (extension.Extension, error) {
			inner, err := of.Create(ctx, settings, config)
			if err != nil {
				return nil, err //nolint:wrapcheck // it stands for it
			}
			server, ok := inner.(extensionauth.Server)
			if !ok { // it shows who we are, and asks nobody
				return inner, nil
			}
			d, err := newDoorkeeper(inner, server, settings.TelemetrySettings, time.Now)
			if err != nil {
				return nil, err
			}
			// One that does both is used for exporters as well.
			if client, ok := inner.(interface {
				extensionauth.HTTPClient
				extensionauth.GRPCClient
			}); ok {
				return struct {
					*doorkeeper
					extensionauth.HTTPClient
					extensionauth.GRPCClient
				}{d, client, client}, nil
			}
			return d, nil
		}, of.Stability())
}

// doorkeeper is an authentication extension, and notes whom it turns away.
type doorkeeper struct {
	extension.Extension
	server extensionauth.Server
	now    func() time.Time
	logger *zap.Logger
	turned metric.Int64Counter
	told   seldom.Lines
}

func newDoorkeeper(inner extension.Extension, server extensionauth.Server, settings component.TelemetrySettings, now func() time.Time) (*doorkeeper, error) {
	d := &doorkeeper{Extension: inner, server: server, now: now, logger: settings.Logger}
	var err error
	d.turned, err = settings.MeterProvider.Meter(scopeName).Int64Counter("retryledger_admission_requests_unauthenticated",
		metric.WithUnit("{request}"), metric.WithDescription("Requests that did not show who they are from, or showed what is not known; receivers and the API refuse them."))
	if err != nil {
		return nil, fmt.Errorf("count who is not known: %w", err)
	}
	return d, nil
}

// Authenticate implements extensionauth.Server.
func (d *doorkeeper) Authenticate(ctx context.Context, sources map[string][]string) (context.Context, error) {
	known, err := d.server.Authenticate(ctx, sources)
	if err == nil {
		return known, nil
	}
	d.turned.Add(context.WithoutCancel(ctx), 1)
	if unsaid, due := d.told.Due("", 1, d.now()); due {
		d.logger.Warn("A request was refused, for it does not show that it is from somebody who is known. Give its sender what this extension expects",
			zap.Error(err), zap.Int("requests", unsaid+1))
	}
	return known, err //nolint:wrapcheck // it stands for it
}
