package signals_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/retryledger/retryledger/alerts/signals"
)

func TestLabelsOfEveryDimension(t *testing.T) {
	var labels signals.Labels
	for _, d := range signals.Dimensions() {
		assert.Empty(t, labels.Get(d))
		labels = labels.With(d, "a "+string(d))
	}
	assert.Equal(t, signals.Labels{
		Service: "a service", Environment: "a environment", Version: "a version", Step: "a step", Provider: "a provider",
	}, labels)
	assert.Equal(t, "a step", labels.Get(signals.Step))
	assert.Equal(t, labels, labels.With("colour", "red"))
	assert.Empty(t, labels.Get("colour"))
}

func TestSignalsLackTheDimensionsOfFinerGrains(t *testing.T) {
	assert.Len(t, signals.All(), 12)
	assert.Contains(t, signals.ServerErrorRatio.Dimensions(), signals.Provider)
	assert.NotContains(t, signals.OperationErrorRatio.Dimensions(), signals.Provider)
	assert.NotContains(t, signals.IncompleteRunRatio.Dimensions(), signals.Step)
	assert.Nil(t, signals.Signal("error_ratio").Dimensions())
	signals.OperationErrorRatio.Dimensions()[0] = "changed"
	assert.Equal(t, signals.Service, signals.OperationErrorRatio.Dimensions()[0])
}
