package gates

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/expr-lang/expr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
	"k8s.io/client-go/util/jsonpath"
)

// example reads a document of examples/gates; a field that its type does not have is a
// mistake.
func example(t *testing.T, name string, into any) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("..", "..", "examples", "gates", name))
	require.NoError(t, err)
	decoder := yaml.NewDecoder(bytes.NewReader(raw))
	decoder.KnownFields(true)
	require.NoError(t, decoder.Decode(into))
	require.ErrorIs(t, decoder.Decode(into), io.EOF, "one document")
}

type metadata struct {
	Name      string
	Namespace string
}

// analysisTemplate is Argo Rollouts' type, as far as the example uses it.
type analysisTemplate struct {
	APIVersion string `yaml:"apiVersion"`
	Kind       string
	Metadata   metadata
	Spec       struct {
		Args    []struct{ Name, Value string }
		Metrics []analysisMetric
	}
}

type analysisMetric struct {
	Name                  string
	InitialDelay          string `yaml:"initialDelay"`
	Interval              string
	Count                 int
	SuccessCondition      string `yaml:"successCondition"`
	FailureCondition      string `yaml:"failureCondition"`
	FailureLimit          int    `yaml:"failureLimit"`
	InconclusiveLimit     int    `yaml:"inconclusiveLimit"`
	ConsecutiveErrorLimit int    `yaml:"consecutiveErrorLimit"`
	Provider              struct {
		Web struct {
			URL            string
			TimeoutSeconds int    `yaml:"timeoutSeconds"`
			JSONPath       string `yaml:"jsonPath"`
		}
	}
}

var argument = regexp.MustCompile(`\{\{ *args\.([a-z-]+) *\}\}`)

// measure does what Argo Rollouts 1.9 does with a web metric: an answer other than 2xx
// is an error; what the path finds in the body is the result of both conditions; a
// measurement that meets neither is inconclusive.
// (argoproj/argo-rollouts metricproviders/webmetric and utils/evaluate.)
func (m analysisMetric) measure(t *testing.T, h http.Handler, args map[string]string) (string, error) {
	t.Helper()
	target, err := url.Parse(argument.ReplaceAllStringFunc(m.Provider.Web.URL, func(s string) string {
		value, ok := args[argument.FindStringSubmatch(s)[1]]
		require.True(t, ok, "%s is an argument", s)
		return value
	}))
	require.NoError(t, err)
	require.Equal(t, Path, target.Path)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, target.String(), http.NoBody))
	if w.Code < 200 || w.Code >= 300 {
		return "", fmt.Errorf("received %d: %s", w.Code, w.Body)
	}
	var data any
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &data))
	path := jsonpath.New("metrics")
	require.NoError(t, path.Parse(m.Provider.Web.JSONPath))
	found, err := path.FindResults(data)
	require.NoError(t, err)
	require.NotEmpty(t, found)
	require.NotEmpty(t, found[0])
	result := found[0][0].Interface()
	success, failure := condition(t, m.SuccessCondition, result), condition(t, m.FailureCondition, result)
	switch {
	case failure:
		return "Failed", nil
	case success:
		return "Successful", nil
	}
	return "Inconclusive", nil
}

func condition(t *testing.T, text string, result any) bool {
	t.Helper()
	env := map[string]any{"result": result, "isNaN": math.IsNaN}
	program, err := expr.Compile(text, expr.Env(env))
	require.NoError(t, err)
	met, err := expr.Run(program, env)
	require.NoError(t, err)
	holds, ok := met.(bool)
	require.True(t, ok, "%s is true or false", text)
	return holds
}

func TestTheExampleForArgoRollouts(t *testing.T) {
	var template analysisTemplate
	example(t, "argo-analysis-template.yaml", &template)
	assert.Equal(t, "argoproj.io/v1alpha1", template.APIVersion)
	assert.Equal(t, "AnalysisTemplate", template.Kind)
	args := map[string]string{"service": "checkout", "version": "v2", "baseline": "v1"}
	for _, arg := range template.Spec.Args {
		if arg.Value != "" {
			args[arg.Name] = arg.Value
		}
		require.Contains(t, args, arg.Name, "an argument that this test gives")
	}
	require.Len(t, template.Spec.Metrics, 1)
	metric := template.Spec.Metrics[0]
	for _, text := range []string{metric.InitialDelay, metric.Interval} {
		_, err := time.ParseDuration(text)
		require.NoError(t, err)
	}
	require.Greater(t, metric.Count, metric.InconclusiveLimit, "else too many inconclusive measurements cannot be seen")

	phases := map[Decision]string{Pass: "Successful", Fail: "Failed", Inconclusive: "Inconclusive"}
	seen := map[Decision]bool{}
	for _, release := range releases {
		e := release.events
		decision := release.decision
		if release.cause == CauseWithinThreshold { // the example names a baseline, which has no data here
			decision = Inconclusive
		}
		phase, err := metric.measure(t, serve(e), args)
		require.NoError(t, err)
		assert.Equal(t, phases[decision], phase, release.cause)
		seen[decision] = true
	}
	assert.Len(t, seen, 3)
	phase, err := metric.measure(t, serve(broken{}), args)
	require.NoError(t, err, "a store that is away ends no analysis in error")
	assert.Equal(t, "Inconclusive", phase)
	args["version"] = "v1"
	_, err = metric.measure(t, serve(nil), args)
	assert.ErrorContains(t, err, "it is the version itself", "a mistake is an error of the measurement, not a failed release")
}

// flaggerCanary is Flagger's type, as far as the example uses it.
type flaggerCanary struct {
	APIVersion string `yaml:"apiVersion"`
	Kind       string
	Metadata   metadata
	Spec       struct {
		TargetRef map[string]string `yaml:"targetRef"`
		Service   map[string]int
		Analysis  struct {
			Interval   string
			Threshold  int
			MaxWeight  int `yaml:"maxWeight"`
			StepWeight int `yaml:"stepWeight"`
			Webhooks   []flaggerWebhook
		}
	}
}

type flaggerWebhook struct {
	Type, Name, URL, Timeout string
	MuteAlert                bool              `yaml:"muteAlert"`
	Metadata                 map[string]string // Flagger's type too: values are strings
}

// call does what Flagger 1.42 does with a webhook: it posts this payload, and a status
// above 202 is an error with the body's text. (fluxcd/flagger pkg/controller/webhook.go.)
func (f flaggerWebhook) call(t *testing.T, h http.Handler, c flaggerCanary) error {
	t.Helper()
	body, err := json.Marshal(map[string]any{
		"name": c.Metadata.Name, "namespace": c.Metadata.Namespace, "phase": "Progressing", "checksum": "85d557f47b", "metadata": f.Metadata,
	})
	require.NoError(t, err)
	target, err := url.Parse(f.URL)
	require.NoError(t, err)
	require.Equal(t, Path, target.Path)
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, f.URL, bytes.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if w.Code > 202 {
		return errors.New(w.Body.String())
	}
	return nil
}

func TestTheExampleForFlagger(t *testing.T) {
	var canary flaggerCanary
	example(t, "flagger-canary.yaml", &canary)
	assert.Equal(t, "flagger.app/v1beta1", canary.APIVersion)
	assert.Equal(t, "Canary", canary.Kind)
	hooks := map[string]flaggerWebhook{}
	for _, hook := range canary.Spec.Analysis.Webhooks {
		_, err := time.ParseDuration(hook.Timeout)
		require.NoError(t, err)
		hook.Metadata["version"], hook.Metadata["baseline"] = "v2", "v1" // of the releases below
		hooks[hook.Type] = hook
	}
	require.Len(t, hooks, 3)
	for _, release := range releases {
		decision := release.decision
		if release.cause == CauseWithinThreshold { // the example names a baseline, which has no data here
			decision = Inconclusive
		}
		h := serve(release.events)
		for _, kind := range []string{"confirm-traffic-increase", "confirm-promotion"} {
			err := hooks[kind].call(t, h, canary)
			assert.Equal(t, decision == Pass, err == nil, "%s: %s goes on only when the gate passes", release.cause, kind)
			if err != nil {
				assert.ErrorContains(t, err, `"reason":"operation_error_ratio of v2`, "Flagger's event says why")
			}
		}
		assert.Equal(t, decision == Fail, hooks["rollback"].call(t, h, canary) == nil, "%s: rolled back only when the gate fails", release.cause)
	}
	for kind, hook := range hooks {
		assert.ErrorContains(t, hook.call(t, serve(broken{}), canary), "Nothing can be read", "%s: a store that is away neither lets on nor takes back", kind)
	}
}
