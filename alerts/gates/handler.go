package gates

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/retryledger/retryledger/alerts/signals"
	"github.com/retryledger/retryledger/analysis/answer"
)

// Path is where the handler expects to be served.
const Path = "/api/v1/gates/canary"

// The defaults of a question over HTTP.
const (
	DefaultWindow     = 3 * time.Minute
	DefaultMaxWindow  = 15 * time.Minute
	DefaultStaleAfter = 30 * time.Second
	DefaultSignal     = signals.OperationErrorRatio
)

const (
	leastSamples = 2 // one failure of one says nothing
	maxPayload   = 64 << 10
)

// HandlerSettings are what the handler needs. All are required but Logger.
type HandlerSettings struct {
	// Reader counts. It must hold what Keep says.
	Reader signals.Reader
	// UpTo is the instant up to which Reader has all that the store has, zero if nothing
	// was read yet.
	UpTo func() time.Time
	// Now is of the clock of UpTo.
	Now func() time.Time
	// MaxWindow is the longest window that may be asked for.
	MaxWindow time.Duration
	// StaleAfter is how old the newest data may be.
	StaleAfter time.Duration
	Logger     *zap.Logger
}

// NewHandler answers at Path.
//
// GET is for people, scripts and the web provider of Argo Rollouts: 200 with the answer
// whatever the decision is. POST is for webhooks of Flagger, whose metadata are
// parameters like those of the address: 200 if the decision is one of the parameter
// accept, pass by default, else 412; the body is the answer in either case.
//
// A question that makes no sense is 400 with a sentence.
func NewHandler(settings HandlerSettings) http.Handler {
	if settings.Logger == nil {
		settings.Logger = zap.NewNop()
	}
	return &handler{settings}
}

type handler struct{ HandlerSettings }

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	values := r.URL.Query()
	accept := []Decision{Pass, Fail, Inconclusive}
	switch r.Method {
	case http.MethodGet, http.MethodHead:
	case http.MethodPost:
		accept = []Decision{Pass}
		if err := addMetadata(values, http.MaxBytesReader(w, r.Body, maxPayload)); err != nil {
			h.refuse(w, err)
			return
		}
	default:
		w.Header().Set("Allow", "GET, HEAD, POST")
		answer.Write(w, h.Logger, http.StatusMethodNotAllowed, answer.Failure{Error: "ask with GET, or with POST as a webhook does"})
		return
	}
	question, err := h.question(values)
	if err == nil {
		accept, err = accepted(values, accept)
	}
	if err != nil {
		h.refuse(w, err)
		return
	}
	found, err := Canary(r.Context(), h.Reader, question, h.UpTo(), h.Now(), h.StaleAfter)
	if errors.Is(err, context.Canceled) && r.Context().Err() != nil {
		return // nobody waits for an answer
	}
	if err != nil {
		h.Logger.Warn("A gate could not be judged", zap.Error(err))
	}
	status := http.StatusOK
	if !slices.Contains(accept, found.Decision) {
		status = http.StatusPreconditionFailed
	}
	answer.Write(w, h.Logger, status, found)
}

// payload is what Flagger posts, as far as it matters here.
type payload struct {
	Metadata map[string]string `json:"metadata"`
}

// addMetadata adds the metadata of a webhook's payload to the parameters.
func addMetadata(values url.Values, body io.Reader) error {
	raw, err := io.ReadAll(body)
	if err != nil {
		return fmt.Errorf("the body cannot be read, or is larger than %d bytes", maxPayload)
	}
	if len(raw) == 0 {
		return nil
	}
	var posted payload
	if err := json.Unmarshal(raw, &posted); err != nil {
		return errors.New(`write the body as JSON, with the parameters in "metadata", all of them strings`)
	}
	for name, value := range posted.Metadata {
		if values.Has(name) {
			return answer.BadParameter(name, "it is in the address and in the metadata; leave one out")
		}
		values.Set(name, value)
	}
	return nil
}

// parameters of a question, in the order of the docs.
var parameters = []string{"service", "version", "baseline", "environment", "signal", "window", "threshold", "margin", "min_samples", "accept"}

func (h *handler) question(values url.Values) (Question, error) {
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if !slices.Contains(parameters, name) {
			return Question{}, fmt.Errorf("a gate has no parameter %q; it takes %s", name, strings.Join(parameters, ", "))
		}
		if len(values[name]) > 1 {
			return Question{}, answer.BadParameter(name, "write it once")
		}
	}
	q := Question{
		Service: values.Get("service"), Environment: values.Get("environment"), Version: values.Get("version"),
		Baseline: values.Get("baseline"), Signal: DefaultSignal, Window: DefaultWindow,
		Rule: Rule{Threshold: DefaultThreshold, FalseFail: DefaultFalseFail, FalsePass: DefaultFalsePass},
	}
	switch {
	case q.Service == "":
		return q, answer.BadParameter("service", "name the service, as service.name of its spans does")
	case q.Version == "":
		return q, answer.BadParameter("version", "name the version that is to be judged, as service.version of its spans does")
	case q.Baseline == q.Version:
		return q, answer.BadParameter("baseline", "it is the version itself; name the one that it replaces")
	}
	if text := values.Get("signal"); text != "" {
		if q.Signal = signals.Signal(text); !slices.Contains(Signals(), q.Signal) {
			return q, answer.BadParameter("signal", "write one of "+join(Signals()))
		}
	}
	if text := values.Get("window"); text != "" {
		window, err := time.ParseDuration(text)
		if err != nil || window < time.Second || window > h.MaxWindow || window%time.Second != 0 {
			return q, answer.BadParameter("window", fmt.Sprintf("write whole seconds up to %s, such as 3m or 90s", duration(h.MaxWindow)))
		}
		q.Window = window
	}
	if err := ratio(values, "threshold", &q.Rule.Threshold); err != nil {
		return q, err
	}
	q.Rule.Margin = q.Rule.Threshold
	if err := ratio(values, "margin", &q.Rule.Margin); err != nil {
		return q, err
	}
	q.Rule.MinSamples = DefaultMinSamples(q.Rule.Threshold)
	if text := values.Get("min_samples"); text != "" {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n < leastSamples {
			return q, answer.BadParameter("min_samples", fmt.Sprintf("write a whole number, at least %d", leastSamples))
		}
		q.Rule.MinSamples = n
	}
	return q, nil
}

// ratio reads a ratio of 1, or in percent.
func ratio(values url.Values, name string, to *float64) error {
	text := values.Get(name)
	if text == "" {
		return nil
	}
	number, inPercent := strings.CutSuffix(text, "%")
	x, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
	if inPercent {
		x /= 100
	}
	if err != nil || !(x >= 0 && x < 1) {
		return answer.BadParameter(name, "write a ratio from 0 to below 1, such as 0.01, or a percentage, such as 1 %")
	}
	*to = x
	return nil
}

func accepted(values url.Values, otherwise []Decision) ([]Decision, error) {
	text := values.Get("accept")
	if text == "" {
		return otherwise, nil
	}
	all := []Decision{Pass, Fail, Inconclusive}
	var accept []Decision
	for one := range strings.SplitSeq(text, ",") {
		decision := Decision(strings.TrimSpace(one))
		if !slices.Contains(all, decision) {
			return nil, answer.BadParameter("accept", "write the decisions that are answered by 200, of "+join(all)+", with commas between")
		}
		accept = append(accept, decision)
	}
	return accept, nil
}

func join[S ~string](list []S) string {
	texts := make([]string, len(list))
	for i, s := range list {
		texts[i] = string(s)
	}
	return strings.Join(texts, ", ")
}

func (h *handler) refuse(w http.ResponseWriter, err error) {
	answer.Write(w, h.Logger, http.StatusBadRequest, answer.Failure{Error: err.Error()})
}
