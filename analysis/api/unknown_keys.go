package api

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"go.opentelemetry.io/collector/confmap"
)

var _ confmap.Unmarshaler = (*Config)(nil)

// Unmarshal reads the configuration and refuses settings that there are not. The
// server's own Unmarshal ignores them, for it cannot know what stands beside it.
func (c *Config) Unmarshal(conf *confmap.Conf) error {
	known := settingsOf(reflect.TypeFor[Config]())
	for key := range conf.ToStringMap() {
		if !slices.Contains(known, key) {
			return fmt.Errorf("there is no setting %q; there are %s", key, strings.Join(known, ", "))
		}
	}
	return conf.Unmarshal(c) //nolint:wrapcheck // the Collector says where in the configuration it is
}

// settingsOf lists the settings of a configuration's type, those of squashed ones too.
func settingsOf(t reflect.Type) []string {
	var settings []string
	for i := range t.NumField() {
		field := t.Field(i)
		name, options, _ := strings.Cut(field.Tag.Get("mapstructure"), ",")
		switch {
		case options == "squash":
			settings = append(settings, settingsOf(field.Type)...)
		case name != "" && name != "-":
			settings = append(settings, name)
		}
	}
	slices.Sort(settings)
	return settings
}
