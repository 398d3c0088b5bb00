package report

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"go.uber.org/zap"

	"github.com/retryledger/retryledger/alerts/rules"
	"github.com/retryledger/retryledger/analysis/answer"
	"github.com/retryledger/retryledger/analysis/query"
	"github.com/retryledger/retryledger/schema"
)

const (
	defaultLimit = 100
	maxLimit     = 10_000
	// questionTimeout bounds one question, a replay apart.
	questionTimeout = 30 * time.Second
	// replayTimeout bounds a replay; the command line waits for two minutes.
	replayTimeout = 110 * time.Second
	// around is how much after an alert's beginning, and before its end, is shown second
	// by second, where there is more.
	around = 15 * time.Minute
)

// Settings are what the handler needs.
type Settings struct {
	// Now is the store's clock.
	Now func() time.Time
	// Alerts is what the evaluator came to last.
	Alerts func() Alerts
	// Rules are those in force.
	Rules func() *rules.Set
	// Conn is the store.
	Conn func(context.Context) (driver.Conn, error)
	// Turn waits until a question may ask the store; done lets the next one.
	Turn func(context.Context) (done func(), err error)
	// Limits are those of one question to the store, its time apart.
	Limits query.Limits
	Logger *zap.Logger
	// Ending is closed when nothing may be waited for any more. Nil: never.
	Ending <-chan struct{}
}

type handler struct {
	Settings
	replaying chan struct{} // one replay at a time
}

// Routes are the patterns of the API with their handlers.
func Routes(settings Settings) map[string]http.Handler {
	h := &handler{Settings: settings, replaying: make(chan struct{}, 1)}
	return map[string]http.Handler{
		AlertsPath:                    h.get(nil, h.alerts),
		HistoryPath:                   h.get([]string{"since", "until", "rule", "limit"}, h.history),
		AlertsPath + "/{fingerprint}": h.page(h.get(nil, h.why)),
		RulesPath:                     h.get(nil, h.rules),
		ReplayPath:                    http.HandlerFunc(h.replay),
	}
}

func (h *handler) get(parameters []string, ask func(context.Context, *http.Request) (any, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			h.fail(w, r, answer.Refuse(http.StatusMethodNotAllowed, "ask with GET"))
			return
		}
		if err := answer.CheckParameters(r.URL.Path, r.URL.Query(), parameters...); err != nil {
			h.fail(w, r, err)
			return
		}
		ctx, cancel := h.bounded(r.Context(), questionTimeout)
		defer cancel()
		found, err := ask(ctx, r)
		if err != nil {
			h.fail(w, r, err)
			return
		}
		h.write(w, http.StatusOK, found)
	})
}

// page answers a browser, which follows the link of a notification, in words.
func (h *handler) page(otherwise http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Vary", "Accept")
		if r.Method != http.MethodGet || !strings.Contains(r.Header.Get("Accept"), "text/html") {
			otherwise.ServeHTTP(w, r)
			return
		}
		ctx, cancel := h.bounded(r.Context(), questionTimeout)
		defer cancel()
		why, err := h.explained(ctx, r.PathValue("fingerprint"))
		if err != nil {
			h.fail(w, r, err)
			return
		}
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = io.WriteString(w, why.Text()) //nolint:gosec // plain text, which no browser takes for a page: the API forbids to guess
	})
}

// bounded bounds the time of a question, in the store too.
func (h *handler) bounded(ctx context.Context, within time.Duration) (context.Context, context.CancelFunc) {
	limits := h.Limits
	limits.Timeout, limits.MaxRows = within, 0 // a replay reads many rows, one after the other
	return limits.Within(ctx)
}

func (h *handler) alerts(context.Context, *http.Request) (any, error) { return h.Alerts(), nil }

func (h *handler) rules(context.Context, *http.Request) (any, error) { return RulesOf(h.Rules()), nil }

func (h *handler) history(ctx context.Context, r *http.Request) (any, error) {
	values := r.URL.Query()
	filter := schema.AlertFilter{Rule: values.Get("rule")}
	var err error
	if filter.Since, filter.Until, err = h.window(values); err != nil {
		return nil, err
	}
	limit := defaultLimit
	if text := values.Get("limit"); text != "" {
		if limit, err = strconv.Atoi(text); err != nil || limit < 1 || limit > maxLimit {
			return nil, answer.BadParameter("limit", fmt.Sprintf("write a number from 1 to %d", maxLimit))
		}
	}
	filter.Limit = limit + 1
	conn, done, err := h.conn(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	rows, err := schema.AlertTransitions(ctx, conn, filter)
	if err != nil {
		return nil, err //nolint:wrapcheck // schema says what was attempted
	}
	out := History{Since: orNull(filter.Since), Until: orNull(filter.Until), Transitions: []Transition{}, More: len(rows) > limit}
	slices.Reverse(rows)
	for i := range rows[:min(limit, len(rows))] {
		out.Transitions = append(out.Transitions, TransitionOf(&rows[i]))
	}
	return out, nil
}

// window reads since and until, where they are given.
func (h *handler) window(values url.Values) (since, until time.Time, err error) {
	now := h.Now()
	for name, to := range map[string]*time.Time{"since": &since, "until": &until} {
		if text := values.Get(name); text != "" {
			if *to, err = answer.ParseInstant(text, now); err != nil {
				return since, until, answer.BadParameter(name, err.Error())
			}
		}
	}
	if !since.IsZero() && !until.IsZero() && !since.Before(until) {
		return since, until, answer.BadParameter("since", "it must be before until")
	}
	return since, until, nil
}

func (h *handler) why(ctx context.Context, r *http.Request) (any, error) {
	return h.explained(ctx, r.PathValue("fingerprint"))
}

func (h *handler) explained(ctx context.Context, text string) (*Why, error) {
	lowest, highest, err := beginsWith(text)
	if err != nil {
		return nil, err
	}
	conn, done, err := h.conn(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	fingerprint, err := named(ctx, conn, text, lowest, highest)
	if err != nil {
		return nil, err
	}
	rows, err := schema.AlertTransitions(ctx, conn, schema.AlertFilter{Fingerprint: &fingerprint, Limit: defaultLimit})
	if err != nil {
		return nil, err //nolint:wrapcheck // schema says what was attempted
	}
	if len(rows) == 0 {
		return nil, noAlert(text)
	}
	out := &Why{Transitions: []Transition{}, Samples: []Sample{}}
	for _, a := range h.Alerts().Alerts {
		if a.Fingerprint == Fingerprint(fingerprint) {
			out.Held, out.HeldSince = a.Held, a.HeldSince
		}
	}
	last := rows[len(rows)-1]
	for _, rule := range h.Rules().Rules() {
		if rule.Name == last.Rule {
			out.Condition = rule.Condition()
		}
	}
	for i := range slices.Backward(rows) {
		out.Transitions = append(out.Transitions, TransitionOf(&rows[i]))
	}
	begin, end := episode(rows)
	begin = begin.Add(-time.Duration(last.WindowS) * time.Second)
	if end.IsZero() {
		end = h.Now()
	}
	end = end.Add(time.Second) // its own second too
	filter := schema.AlertFilter{Since: begin, Until: end, Rule: last.Rule, Group: &last.Group}
	if middle := begin.Add(time.Duration(last.WindowS)*time.Second + around); middle.Before(end.Add(-around)) {
		out.LeftOff = &Period{middle.UTC(), end.Add(-around).UTC()}
		filter.Until = middle
	}
	for {
		samples, err := schema.AlertSamples(ctx, conn, filter)
		if err != nil {
			return nil, err //nolint:wrapcheck // schema says what was attempted
		}
		for i := range samples {
			out.Samples = append(out.Samples, sampleOf(&samples[i]))
		}
		if filter.Until.Equal(end) {
			return out, nil
		}
		filter.Since, filter.Until = out.LeftOff.To, end
	}
}

const fingerprintDigits = 16

// beginsWith is from which to which fingerprint those lie whose digits begin with text.
func beginsWith(text string) (first, last uint64, err error) {
	if len(text) > fingerprintDigits {
		text = "" // refused below
	}
	first, err = strconv.ParseUint(text, 16, 64)
	if err != nil {
		return 0, 0, answer.BadParameter("fingerprint", "write the 16 hex digits that the list of alerts shows, or the first of them")
	}
	missing := 4 * (fingerprintDigits - len(text))
	first <<= missing
	return first, first | (1<<missing - 1), nil
}

// named is the one fingerprint in the history from first to last, whose digits text is or
// begins.
func named(ctx context.Context, conn driver.Conn, text string, first, last uint64) (uint64, error) {
	if first == last {
		return first, nil
	}
	const shown = 10
	found, err := schema.AlertFingerprints(ctx, conn, first, last, shown+1)
	switch {
	case err != nil:
		return 0, err //nolint:wrapcheck // schema says what was attempted
	case len(found) == 1:
		return found[0], nil
	case len(found) == 0:
		return 0, noAlert(text)
	case len(found) > shown:
		return 0, answer.Refuse(http.StatusConflict, fmt.Sprintf("%q begins the fingerprints of more than %d alerts; give more of it", text, shown))
	}
	all := make([]string, len(found))
	for i, f := range found {
		all[i] = Fingerprint(f)
	}
	return 0, answer.Refuse(http.StatusConflict, fmt.Sprintf("%q begins the fingerprints of several alerts; give more of it: %s", text, strings.Join(all, ", ")))
}

func noAlert(fingerprint string) error {
	return answer.Refuse(http.StatusNotFound, fmt.Sprintf("no alert has the fingerprint %q, or one that begins so, now or in the history", fingerprint))
}

// episode is when an alert last began to breach, and when that ended; end is zero while
// it has not. rows are its transitions in the order of time.
func episode(rows []schema.AlertTransition) (begin, end time.Time) {
	begin = rows[0].At
	for i := range rows {
		switch row := &rows[i]; {
		case row.From == string(rules.StateInactive):
			begin, end = row.At, time.Time{}
		case row.To == string(rules.StateResolved) || row.To == string(rules.StateInactive):
			end = row.At
		}
	}
	return begin, end
}

// replay evaluates the rules of the body, or those in force, on the past.
func (h *handler) replay(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", "POST")
		h.fail(w, r, answer.Refuse(http.StatusMethodNotAllowed, "ask with POST; the body is a file of rules, or empty for the rules in force"))
		return
	}
	replay, err := h.replayed(w, r)
	if err != nil {
		h.fail(w, r, err)
		return
	}
	h.write(w, http.StatusOK, replay)
}

func (h *handler) replayed(w http.ResponseWriter, r *http.Request) (Replay, error) {
	values := r.URL.Query()
	if err := answer.CheckParameters(r.URL.Path, values, "since", "until"); err != nil {
		return Replay{}, err
	}
	since, until, err := h.window(values)
	if err != nil {
		return Replay{}, err
	}
	if since.IsZero() {
		return Replay{}, answer.BadParameter("since", "say from when on, such as 7d")
	}
	if until.IsZero() {
		until = h.Now()
	}
	if !since.Before(until) {
		return Replay{}, answer.BadParameter("since", "it must be before until, or now")
	}
	if longest := MaxReplay; until.Sub(since) > longest {
		return Replay{}, answer.BadParameter("since", fmt.Sprintf("a replay covers at most %d days", int(longest.Hours()/24)))
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, rules.MaxFileBytes))
	if err != nil {
		return Replay{}, answer.Refuse(http.StatusBadRequest, fmt.Sprintf("the rules cannot be read, or are larger than %d bytes", rules.MaxFileBytes))
	}
	set := h.Rules()
	if len(body) > 0 {
		if set, err = rules.Load("rules", body); err != nil {
			return Replay{}, answer.Refuse(http.StatusBadRequest, err.Error())
		}
	}
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(replayTimeout + questionTimeout)) // a server without one has none to move
	ctx, cancel := h.bounded(r.Context(), replayTimeout)
	defer cancel()
	go func() {
		select {
		case <-h.Ending:
			cancel()
		case <-ctx.Done():
		}
	}()
	select {
	case h.replaying <- struct{}{}:
		defer func() { <-h.replaying }()
	default:
		return Replay{}, answer.Refuse(http.StatusServiceUnavailable, "another replay is being worked on; ask again later")
	}
	var replay Replay
	conn, done, err := h.conn(ctx)
	if err == nil {
		replay, err = ReplayOf(ctx, conn, set, since, until)
		done()
	}
	select {
	case <-h.Ending:
		if err != nil {
			err = answer.Refuse(http.StatusServiceUnavailable, "the collector is being stopped")
		}
	default:
	}
	return replay, err
}

// conn is the store, when it is the question's turn; done ends that.
func (h *handler) conn(ctx context.Context) (conn driver.Conn, done func(), err error) {
	if done, err = h.Turn(ctx); err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if conn, err = h.Conn(ctx); err != nil {
		done()
		return nil, nil, answer.ErrNotReady
	}
	return conn, done, nil
}

// fail writes an error as JSON; what is not the asker's is logged.
func (h *handler) fail(w http.ResponseWriter, r *http.Request, err error) {
	var refusal *answer.RefusalError
	excess, own := h.Limits.Excess(err)
	switch {
	case errors.As(err, &refusal):
		h.write(w, refusal.Status, answer.Failure{Error: refusal.Sentence})
	case errors.Is(err, context.Canceled) && r.Context().Err() != nil: // nobody waits for an answer
	case answer.TookTooLong(err):
		h.write(w, http.StatusGatewayTimeout, answer.Failure{Error: "the answer took too long; ask for a shorter time"})
	case excess != "" && own:
		h.Logger.Info("A question about alerts was too large", zap.String("path", r.URL.Path), zap.Error(err))
		h.write(w, http.StatusUnprocessableEntity, answer.Failure{Error: excess})
	case excess != "":
		h.Logger.Warn("The store could not bear a question about alerts", zap.String("path", r.URL.Path), zap.Error(err))
		h.write(w, http.StatusServiceUnavailable, answer.Failure{Error: excess})
	default:
		h.Logger.Error("A question about alerts could not be answered", zap.String("path", r.URL.Path), zap.Error(err))
		h.write(w, http.StatusBadGateway, answer.Failure{Error: "the store could not answer; the collector's log says why"})
	}
}

func (h *handler) write(w http.ResponseWriter, status int, body any) {
	answer.Write(w, h.Logger, status, body)
}
