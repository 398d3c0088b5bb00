package breakers

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

const scopeName = "github.com/retryledger/retryledger/alerts/breakers"

// Measure reports the breakers as metrics of the collector until stop is called.
func Measure(provider metric.MeterProvider, s *Set, now func() time.Time) (stop func() error, err error) {
	meter := provider.Meter(scopeName)
	state, err1 := meter.Int64ObservableGauge("retryledger_breaker_state", metric.WithUnit("1"),
		metric.WithDescription("1 for the state in which a provider's breaker is, 0 for the others."))
	trips, err2 := meter.Int64ObservableCounter("retryledger_breaker_trips", metric.WithUnit("{trip}"),
		metric.WithDescription("How often a provider's breaker has opened."))
	if err := errors.Join(err1, err2); err != nil {
		return nil, fmt.Errorf("breakers: %w", err)
	}
	registration, err := meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		for _, v := range s.Views(now(), false).Breakers {
			who := attribute.String("provider", v.Provider)
			for _, one := range []State{Closed, Open, HalfOpen} {
				is := int64(0)
				if v.State == one {
					is = 1
				}
				o.ObserveInt64(state, is, metric.WithAttributes(who, attribute.String("state", string(one))))
			}
			o.ObserveInt64(trips, v.Trips, metric.WithAttributes(who))
		}
		return nil
	}, state, trips)
	if err != nil {
		return nil, fmt.Errorf("breakers: %w", err)
	}
	return registration.Unregister, nil
}
