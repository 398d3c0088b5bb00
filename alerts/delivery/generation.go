package delivery

import (
	"log/slog"
	"net/url"
	"sync/atomic"
	"time"

	amconfig "github.com/prometheus/alertmanager/config"
	"github.com/prometheus/alertmanager/config/receiver"
	"github.com/prometheus/alertmanager/dispatch"
	"github.com/prometheus/alertmanager/inhibit"
	"github.com/prometheus/alertmanager/notify"
	"github.com/prometheus/alertmanager/template"
	"github.com/prometheus/alertmanager/timeinterval"
	commoncfg "github.com/prometheus/common/config"
)

// parsed is everything of a configuration whose making can fail. It touches nothing that runs.
type parsed struct {
	conf         *amconfig.Config
	templates    *template.Template
	routes       *dispatch.Route
	receivers    map[string][]notify.Integration
	integrations int
	intervener   *timeinterval.Intervener
	underWay     atomic.Int64 // notifications that receivers have not answered
}

func parse(conf *amconfig.Config, external *url.URL, logger *slog.Logger, conns *connections) (*parsed, error) {
	templates, err := template.FromGlobs(conf.Templates)
	if err != nil {
		return nil, err
	}
	templates.ExternalURL = external

	p := &parsed{
		conf: conf, templates: templates, routes: dispatch.NewRoute(conf.Route, nil),
		receivers: map[string][]notify.Integration{},
	}
	used := map[string]bool{}
	p.routes.Walk(func(r *dispatch.Route) { used[r.RouteOpts.Receiver] = true })
	for i := range conf.Receivers {
		r := conf.Receivers[i]
		// Made even where no route uses it, so that its mistakes are told at once.
		integrations, err := receiver.BuildReceiverIntegrations(r, templates, logger, commoncfg.WithDialContextFunc(conns.dial))
		if err != nil {
			return nil, err
		}
		if !used[r.Name] {
			logger.Warn("no route leads to this receiver", "receiver", r.Name)
			continue
		}
		for i := range integrations {
			integrations[i] = contain(integrations[i], r.Name, &p.underWay)
		}
		p.receivers[r.Name] = integrations
		p.integrations += len(integrations)
	}

	intervals := map[string][]timeinterval.TimeInterval{}
	for _, ti := range conf.MuteTimeIntervals {
		intervals[ti.Name] = ti.TimeIntervals
	}
	for _, ti := range conf.TimeIntervals {
		intervals[ti.Name] = ti.TimeIntervals
	}
	p.intervener = timeinterval.NewIntervener(intervals)
	return p, nil
}

// warn tells what is allowed but seldom meant.
func (p *parsed) warn(logger *slog.Logger, retention time.Duration) {
	if p.integrations == 0 {
		logger.Warn("no receiver tells anybody: alerts are only kept and shown")
	}
	// Alertmanager's own default is 30 s, which whoever does not set it at the root hardly
	// means. A route below that waits says so itself.
	if wait := p.routes.RouteOpts.GroupWait; wait > 5*time.Second {
		logger.Warn("the first notification of a group waits for group_wait; 0s tells at once", "route", p.routes.Key(), "group_wait", wait)
	}
	p.routes.Walk(func(r *dispatch.Route) {
		l := logger.With("route", r.Key(), "receiver", r.RouteOpts.Receiver)
		if r.RouteOpts.RepeatInterval > retention {
			l.Warn("repeat_interval is longer than retention: what is forgotten is told again",
				"repeat_interval", r.RouteOpts.RepeatInterval, "retention", retention)
		}
		if r.RouteOpts.RepeatInterval < r.RouteOpts.GroupInterval {
			l.Warn("repeat_interval is shorter than group_interval, which is what counts then",
				"repeat_interval", r.RouteOpts.RepeatInterval, "group_interval", r.RouteOpts.GroupInterval)
		}
	})
}

// answerTimeout is how long the end of a configuration waits for answers of receivers.
const answerTimeout = 2 * time.Second

// generation is what runs of one configuration, and is replaced as a whole by the next one.
type generation struct {
	*parsed
	inhibitor  *inhibit.Inhibitor
	dispatcher *dispatch.Dispatcher
	conns      *connections
}

// run starts what was parsed. It returns once both have read the alerts there are: the inhibitor first, so that nobody
// is told of what is inhibited.
func (g *generation) run(e *embedded) {
	var peer notify.Peer // an interface that holds a nil pointer is not nil
	if e.cluster != nil {
		peer = e.cluster
	}
	g.inhibitor = inhibit.NewInhibitor(e.alerts, g.conf.InhibitRules, e.logger, e.recorder)
	pipeline := e.pipelines.New(g.receivers, e.wait, g.inhibitor, e.silencer, g.intervener, e.nflog, peer)
	g.dispatcher = dispatch.NewDispatcher(e.alerts, g.routes, pipeline, g.intervener, e.timeout,
		30*time.Second, nil, e.logger, e.recorder, e.dispatchMetrics, g.templates)

	go g.inhibitor.Run()
	g.inhibitor.WaitForLoading()
	go g.dispatcher.Run(e.started)
	g.dispatcher.WaitForLoading()
}

// stop first gives receivers a moment to answer: a notification that is interrupted is sent again by what comes next.
func (g *generation) stop() {
	if g == nil {
		return
	}
	for end := time.Now().Add(answerTimeout); g.underWay.Load() > 0 && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	g.inhibitor.Stop()
	g.dispatcher.Stop()
	g.conns.close()
}
