package delivery

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/prometheus/alertmanager/alert"
	"github.com/prometheus/alertmanager/silence"
	"github.com/prometheus/common/model"
)

// convert makes Alertmanager's alerts of ours, as of now. Invalid ones are left out and told in the error.
func convert(alerts []Alert, now time.Time) ([]*alert.Alert, error) {
	converted := make([]*alert.Alert, 0, len(alerts))
	var errs error
	for i := range alerts {
		a := &alerts[i]
		m := model.Alert{
			Labels: labelSet(a.Labels), Annotations: labelSet(a.Annotations),
			StartsAt: a.StartsAt, EndsAt: a.EndsAt, GeneratorURL: a.GeneratorURL,
		}
		if err := alert.Validate(&m); err != nil {
			errs = errors.Join(errs, fmt.Errorf("%w %s: %w", ErrInvalidAlert, m.Labels, err))
			continue
		}
		lease := m.EndsAt.IsZero()
		if lease {
			m.EndsAt = now.Add(Lease)
		}
		converted = append(converted, alert.New(m, now, lease))
	}
	return converted, errs
}

func labelSet(m map[string]string) model.LabelSet {
	s := make(model.LabelSet, len(m))
	for k, v := range m {
		if v != "" {
			s[model.LabelName(k)] = model.LabelValue(v)
		}
	}
	return s
}

// held counts the alerts in memory and refuses those beyond maxAlerts, whoever sends them.
type held struct {
	*silence.Silencer
	n atomic.Int64
}

func (h *held) PreStore(a *alert.Alert, existing bool) error {
	if !existing && h.n.Load() >= maxAlerts {
		return ErrTooManyAlerts
	}
	return h.Silencer.PreStore(a, existing)
}

func (h *held) PostStore(a *alert.Alert, existing bool) {
	if !existing {
		h.n.Add(1)
	}
	h.Silencer.PostStore(a, existing)
}

func (h *held) PostDelete(a *alert.Alert) {
	h.n.Add(-1)
	h.Silencer.PostDelete(a)
}
