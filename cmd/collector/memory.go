package main

import (
	"fmt"
	"math"
	"os"
	"runtime/debug"
	"strings"

	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/processor/memorylimiterprocessor"

	"github.com/retryledger/retryledger/internal/engine"
)

// goMemoryLimit is the Go runtime's own setting, which goes before ours.
const goMemoryLimit = "GOMEMLIMIT"

// limitMemory gives the Go runtime a limit that fits the memory_limiter's. Without it the
// runtime lets garbage grow to the size of what is in use, and the limiter, which cannot
// tell them apart, refuses spans for garbage: with messages of 2 MiB and a limit of
// 200 MiB five times as many.
func limitMemory(conf *confmap.Conf) error {
	if os.Getenv(goMemoryLimit) != "" {
		return nil
	}
	limit, err := runtimeLimit(conf, engine.PhysicalMemory())
	if err != nil {
		return err
	}
	debug.SetMemoryLimit(limit)
	return nil
}

// runtimeLimit lies half way between the memory at which the first memory_limiter begins
// to refuse spans and its limit, on a machine with total bytes; it is math.MaxInt64, no
// limit, without one. The runtime counts its own needs too, so where refusing begins
// would be too low: a busy collector would do little but look for garbage.
func runtimeLimit(conf *confmap.Conf, total int64) (int64, error) {
	least := int64(math.MaxInt64)
	processors, err := conf.Sub("processors")
	if err != nil {
		return 0, fmt.Errorf("read the processors: %w", err)
	}
	factory := memorylimiterprocessor.NewFactory()
	for id := range processors.ToStringMap() {
		if kind, _, _ := strings.Cut(id, "/"); kind != factory.Type().String() {
			continue
		}
		own, err := processors.Sub(id)
		if err != nil {
			return 0, fmt.Errorf("read the settings of %s: %w", id, err)
		}
		settings, ok := factory.CreateDefaultConfig().(*memorylimiterprocessor.Config)
		if !ok || own.Unmarshal(settings) != nil {
			continue // the Collector says what is wrong with it
		}
		hard, spike := int64(settings.MemoryLimitMiB)<<20, int64(settings.MemorySpikeLimitMiB)<<20
		if hard == 0 {
			hard = total * int64(settings.MemoryLimitPercentage) / 100
			spike = total * int64(settings.MemorySpikePercentage) / 100
		}
		if spike == 0 {
			spike = hard / 5 // the limiter's own default
		}
		if hard > spike {
			least = min(least, hard-spike/2)
		}
	}
	return least, nil
}
