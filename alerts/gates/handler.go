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
		h.write(w, http.StatusMethodNotAllowed, answer.Failure{Error: "ask with GET, or with POST as a webhook does"})
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
	h.write(w, status, found)
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
			return mistake(name, "it is in the address and in the metadata; leave one out")
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
			return Question{}, mistake(name, "write it once")
		}
	}
	q := Question{
		Service: values.Get("service"), Environment: values.Get("environment"), Version: values.Get("version"),
		Baseline: values.Get("baseline"), Signal: DefaultSignal, Window: DefaultWindow,
		Rule: Rule{Threshold: DefaultThreshold, FalseFail: DefaultFalseFail, FalsePass: DefaultFalsePass},
	}
	switch {
	case q.Service == "":
		return q, mistake("service", "name the service, as service.name of its spans does")
	case q.Version == "":
		return q, mistake("version", "name the version that is to be judged, as service.version of its spans does")
	case q.Baseline == q.Version:
		return q, mistake("baseline", "it is the version itself; name the one that it replaces")
	}
	if text := values.Get("signal"); text != "" {
		if q.Signal = signals.Signal(text); !slices.Contains(Signals(), q.Signal) {
			return q, mistake("signal", "write one of "+join(Signals()))
		}
	}
	if text := values.Get("window"); text != "" {
		window, err := time.ParseDuration(text)
		if err != nil || window < time.Second || window > h.MaxWindow || window%time.Second != 0 {
			return q, mistake("window", fmt.Sprintf("write whole seconds up to %s, such as 3m or 90s", duration(h.MaxWindow)))
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
			return q, mistake("min_samples", fmt.Sprintf("write a whole number, at least %d", leastSamples))
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
		return mistake(name, "write a ratio from 0 to below 1, such as 0.01, or a percentage, such as 1 %")
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
			return nil, mistake("accept", "write the decisions that are answered by 200, of "+join(all)+", with commas between")
		}
		accept = append(accept, decision)
	}
	return accept, nil
}

func mistake(parameter, remedy string) error {
	return errors.New("parameter " + parameter + ": " + remedy)
}

func join[S ~string](list []S) string {
	texts := make([]string, len(list))
	for i, s := range list {
		texts[i] = string(s)
	}
	return strings.Join(texts, ", ")
}

func (h *handler) refuse(w http.ResponseWriter, err error) {
	h.write(w, http.StatusBadRequest, answer.Failure{Error: err.Error()})
}

func (h *handler) write(w http.ResponseWriter, status int, body any) {
	encoded, err := json.Marshal(body)
	if err != nil {
		h.Logger.Error("A gate's answer could not be written as JSON", zap.Error(err))
		status, encoded = http.StatusInternalServerError, []byte(`{"error":"the answer could not be written as JSON; the collector's log says why"}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(encoded, '\n')) // an asker that is gone needs no answer
}
