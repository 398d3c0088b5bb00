package api

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"go.uber.org/zap"

	"github.com/retryledger/retryledger/analysis/answer"
	"github.com/retryledger/retryledger/analysis/query"
)

// maxRows bounds what one statement may return: the attempts of the largest run that
// attribution accounts for, with room.
const maxRows = 1_000_000

// route is one question.
type route struct {
	parameters []string // of the query
	ask        func(ctx context.Context, asker query.Asker, r *http.Request) (any, error)
}

// questions puts the questions about the ledger onto the mux.
func (s *server) questions() {
	routes := map[string]route{
		"/api/v1/top":       {[]string{"since", "until", "service", "limit"}, s.top},
		"/api/v1/runs":      {[]string{"since", "until", "service", "limit", "completion", "quarantined", "over_budget"}, s.runs},
		"/api/v1/runs/{id}": {nil, s.run},
		"/api/v1/status":    {nil, s.status},
	}
	for pattern, route := range routes {
		s.mux.HandleFunc("GET "+pattern, func(w http.ResponseWriter, r *http.Request) { s.answer(w, r, route) })
		s.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Allow", "GET, HEAD")
			s.fail(w, r, answer.Refuse(http.StatusMethodNotAllowed, "ask with GET"))
		})
	}
	s.patterns = slices.Sorted(maps.Keys(routes))
	s.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		s.fail(w, r, answer.Refuse(http.StatusNotFound, s.nothingAt(r.URL.Path)))
	})
}

// servedByAlerts are what the extension retryledger_alerts serves here.
var servedByAlerts = []string{"/api/v1/alerts", "/api/v1/rules", "/api/v1/gates", "/api/v1/breakers", "/alertmanager"}

// nothingAt says why nothing answers at a path.
func (s *server) nothingAt(path string) string {
	listed := s.listed()
	for _, prefix := range servedByAlerts {
		served := slices.ContainsFunc(listed, func(pattern string) bool { return strings.HasPrefix(pattern, prefix) })
		if (path == prefix || strings.HasPrefix(path, prefix+"/")) && !served {
			return "alerts are not configured on this collector: add retryledger_alerts to extensions and to service::extensions"
		}
	}
	return "there is nothing here; ask " + strings.Join(listed, ", ")
}

// answer asks one question within the limits and writes what comes back.
func (s *server) answer(w http.ResponseWriter, r *http.Request, route route) {
	if err := answer.CheckParameters(r.URL.Path, r.URL.Query(), route.parameters...); err != nil {
		s.fail(w, r, err)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), s.config.QueryTimeout)
	defer cancel()
	done, err := s.Turn(ctx)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	defer done()
	conn, err := s.store.Conn(ctx)
	if err != nil {
		s.logger().Debug("The store is not ready", zap.Error(err))
		s.fail(w, r, answer.ErrNotReady)
		return
	}
	found, err := route.ask(ctx, query.New(conn, s.config.limits()), r)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	s.write(w, http.StatusOK, found)
}

func (s *server) top(ctx context.Context, asker query.Asker, r *http.Request) (any, error) {
	filter, err := s.filter(r.URL.Query())
	if err != nil {
		return nil, err
	}
	return asker.Top(ctx, filter)
}

// completions are the states of a run, as docs/accounting.md names them.
var completions = []string{"complete", "incomplete", "failed", "interrupted", "cancelled", "running", "orphaned", "unflagged"}

func (s *server) runs(ctx context.Context, asker query.Asker, r *http.Request) (any, error) {
	values := r.URL.Query()
	filter, err := s.filter(values)
	if err != nil {
		return nil, err
	}
	runs := answer.RunFilter{Filter: filter, Completion: values.Get("completion")}
	if runs.Completion != "" && !slices.Contains(completions, runs.Completion) {
		return nil, answer.BadParameter("completion", "write one of "+strings.Join(completions, ", "))
	}
	for name, to := range map[string]*bool{"quarantined": &runs.Quarantined, "over_budget": &runs.OverBudget} {
		if text := values.Get(name); text != "" {
			if *to, err = strconv.ParseBool(text); err != nil {
				return nil, answer.BadParameter(name, "write true or false")
			}
		}
	}
	return asker.Runs(ctx, runs)
}

func (s *server) run(ctx context.Context, asker query.Asker, r *http.Request) (any, error) {
	run, err := asker.Run(ctx, r.PathValue("id"))
	if err != nil {
		return nil, err //nolint:wrapcheck // fail tells them apart
	}
	return answer.RunOf(run), nil
}

func (s *server) status(ctx context.Context, asker query.Asker, _ *http.Request) (any, error) {
	status, err := asker.Status(ctx)
	status.Version = s.settings.BuildInfo.Version
	return status, err //nolint:wrapcheck // fail tells them apart
}

// filter reads the parameters that all lists share.
func (s *server) filter(values url.Values) (answer.Filter, error) {
	filter := answer.Filter{Service: values.Get("service"), Limit: min(defaultLimit, s.config.MaxResults)}
	now := s.now()
	var err error
	if text := values.Get("since"); text != "" {
		if filter.Since, err = answer.ParseInstant(text, now); err != nil {
			return filter, answer.BadParameter("since", err.Error())
		}
	}
	if text := values.Get("until"); text != "" {
		if filter.Until, err = answer.ParseInstant(text, now); err != nil {
			return filter, answer.BadParameter("until", err.Error())
		}
	}
	if !filter.Since.IsZero() && !filter.Until.IsZero() && !filter.Since.Before(filter.Until) {
		return filter, answer.BadParameter("since", "it must be before until")
	}
	if text := values.Get("limit"); text != "" {
		limit, err := strconv.Atoi(text)
		if err != nil || limit < 0 {
			return filter, answer.BadParameter("limit", "write a number, 0 for as many as there are")
		}
		if filter.Limit = limit; limit == 0 || limit > s.config.MaxResults {
			filter.Limit = s.config.MaxResults
		}
	}
	return filter, nil
}

// fail writes an error as JSON; what is not the asker's is logged.
func (s *server) fail(w http.ResponseWriter, r *http.Request, err error) {
	var refusal *answer.RefusalError
	var ambiguous *query.AmbiguousError
	excess, own := s.config.limits().Excess(err)
	switch {
	case errors.As(err, &refusal):
		s.write(w, refusal.Status, answer.Failure{Error: refusal.Sentence})
	case errors.As(err, &ambiguous):
		s.write(w, http.StatusConflict, answer.Failure{Error: ambiguous.Error(), Candidates: ambiguous.Candidates})
	case errors.Is(err, query.ErrNotFound):
		s.write(w, http.StatusNotFound, answer.Failure{Error: fmt.Sprintf(
			"no run has the id %q, nor one that begins so; a run shows some seconds after its first span", r.PathValue("id"))})
	case errors.Is(err, context.Canceled) && r.Context().Err() != nil: // nobody waits for an answer
	case answer.TookTooLong(err):
		s.write(w, http.StatusGatewayTimeout, answer.Failure{Error: fmt.Sprintf(
			"the answer took longer than %s; ask for a shorter window, or raise query_timeout", s.config.QueryTimeout)})
	case excess != "" && own:
		s.logger().Info("A question was too large", zap.String("path", r.URL.Path), zap.Error(err))
		s.write(w, http.StatusUnprocessableEntity, answer.Failure{Error: excess})
	case excess != "":
		s.logger().Warn("The store could not bear a question", zap.String("path", r.URL.Path), zap.Error(err))
		s.write(w, http.StatusServiceUnavailable, answer.Failure{Error: excess})
	default:
		s.logger().Error("A question could not be answered", zap.String("path", r.URL.Path), zap.Error(err))
		s.write(w, http.StatusBadGateway, answer.Failure{Error: "the store could not answer; the collector's log says why"})
	}
}

func (s *server) write(w http.ResponseWriter, status int, body any) {
	answer.Write(w, s.logger(), status, body)
}
