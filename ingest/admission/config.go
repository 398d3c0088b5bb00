package admission

import (
	"errors"
	"fmt"
	"time"
)

// Config is how much a collector reads at a time.
type Config struct {
	// MaxInFlight is how many messages may be under way at the same time, over all
	// connections of all receivers that name this extension as middleware. With their
	// message limits it bounds the memory of what arrives.
	MaxInFlight int `mapstructure:"max_in_flight"`
	// ReadWithin is how long a message may take to arrive, from its headers to its last
	// byte. A sender that holds a place without sending loses it then.
	ReadWithin time.Duration `mapstructure:"read_within"`
	// MaxDecodedMiB is how much memory the messages under way may take together when they are
	// decoded, estimated before they are. Spans of instrumentations take four times their size
	// on the wire, tiny ones six times; without this bound empty ones could take a hundred
	// times.
	MaxDecodedMiB int `mapstructure:"max_decoded_mib"`
}

const (
	defaultInFlight = 32
	mostInFlight    = 100_000
	// defaultReadWithin lets a message of 64 MiB in over 20 Mbit/s.
	defaultReadWithin = 30 * time.Second
	leastReadWithin   = time.Second
	mostReadWithin    = time.Hour
	// defaultDecodedMiB is eight times the message size of the default configuration, so that
	// one of tiny spans is taken, and lets in defaultInFlight messages of 4 MiB, the limit
	// that gRPC has by default.
	defaultDecodedMiB = 512
	mostDecodedMiB    = 1 << 20
)

func defaultConfig() *Config {
	return &Config{MaxInFlight: defaultInFlight, ReadWithin: defaultReadWithin, MaxDecodedMiB: defaultDecodedMiB}
}

// Validate implements the Collector's validation of configurations.
func (c *Config) Validate() error {
	var errs []error
	if c.MaxInFlight < 1 || c.MaxInFlight > mostInFlight {
		errs = append(errs, fmt.Errorf("max_in_flight: %d is not between 1 and %d", c.MaxInFlight, mostInFlight))
	}
	if c.ReadWithin < leastReadWithin || c.ReadWithin > mostReadWithin {
		errs = append(errs, fmt.Errorf("read_within: %s is not between %s and %s", c.ReadWithin, leastReadWithin, mostReadWithin))
	}
	if c.MaxDecodedMiB < 1 || c.MaxDecodedMiB > mostDecodedMiB {
		errs = append(errs, fmt.Errorf("max_decoded_mib: %d is not between 1 and %d", c.MaxDecodedMiB, mostDecodedMiB))
	}
	return errors.Join(errs...)
}
