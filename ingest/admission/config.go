package admission

import "fmt"

// Config is how much a collector reads at a time.
type Config struct {
	// MaxInFlight is how many messages may be under way at the same time, over all
	// connections of all receivers that name this extension as middleware. With their
	// message limits it bounds the memory of what arrives.
	MaxInFlight int `mapstructure:"max_in_flight"`
}

const (
	defaultInFlight = 32
	mostInFlight    = 100_000
)

// Validate implements the Collector's validation of configurations.
func (c *Config) Validate() error {
	if c.MaxInFlight < 1 || c.MaxInFlight > mostInFlight {
		return fmt.Errorf("max_in_flight: %d is not between 1 and %d", c.MaxInFlight, mostInFlight) //nolint:err113 // said to the user alone
	}
	return nil
}
