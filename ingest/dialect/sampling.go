package dialect

import (
	"strconv"
	"strings"

	"go.opentelemetry.io/collector/pdata/pcommon"
)

// What a span says of how it was sampled. Of a sampled source spans are missing that no
// other span tells of, so every count over its runs is a lower bound. A sampler that
// leaves no word (most ratio samplers of SDKs) cannot be seen here.

// sampledState tells whether a W3C tracestate says that spans like this one were dropped
// with some probability: OpenTelemetry's rejection threshold `ot=th:…` (zero keeps all;
// "TraceState: Probability Sampling"), its forerunner `ot=p:…`, the negative power of two
// of the probability (zero keeps all), and Elastic's sample rate `es=s:…`.
func sampledState(state string) bool {
	for member := range strings.SplitSeq(state, ",") {
		vendor, fields, ok := strings.Cut(strings.TrimSpace(member), "=")
		if !ok || vendor != "ot" && vendor != "es" {
			continue
		}
		for field := range strings.SplitSeq(fields, ";") {
			key, value, _ := strings.Cut(field, ":")
			switch vendor + " " + key {
			case "ot th":
				if len(value) <= 14 && strings.Trim(value, "0123456789abcdef") == "" && strings.Trim(value, "0") != "" {
					return true
				}
			case "ot p":
				if n, err := strconv.ParseUint(value, 10, 8); err == nil && n >= 1 && n <= 63 {
					return true
				}
			case "es s":
				if rate, err := strconv.ParseFloat(value, 64); err == nil && rate >= 0 && rate < 1 {
					return true
				}
			}
		}
	}
	return false
}

// sampledAttributes tells the same of attributes. A rate may be a share that is kept or
// how many each kept one stands for: in both one means all. The name of a sampler's policy
// says that there is one. A priority is a wish, and no sign of either.
func sampledAttributes(m pcommon.Map) bool {
	sampler, parameter := "", 1.0
	for key, value := range m.All() {
		switch key {
		case "sampling.probability", "sampling.ratio", "sampling.rate", "sampling.adjusted_count", "sampling_ratio",
			"SampleRate", "meta.refinery.sample_rate", "logfire.sample_rate", "sentry.sample_rate":
			if n, ok := (attributes{m}).number(key); ok && n > 0 && n != 1 {
				return true
			}
		case "microsoft.sample_rate", "_MS.sampleRate": // in percent
			if n, ok := (attributes{m}).number(key); ok && n > 0 && n < 100 {
				return true
			}
		case "sampling.policy", "sampling.rule", "tailsampling.policy", "tailsampling.composite_policy":
			if value.AsString() != "" {
				return true
			}
		case "sampler.type": // Jaeger's, on the root
			sampler = value.AsString()
		case "sampler.param":
			if n, ok := (attributes{m}).number(key); ok {
				parameter = n
			}
		}
	}
	return sampler == "probabilistic" && parameter < 1 || sampler == "ratelimiting"
}
