package rules

import (
	"errors"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"text/template"
	"text/template/parse"
	"time"

	"github.com/retryledger/retryledger/alerts/internal/strictyaml"
	"github.com/retryledger/retryledger/alerts/signals"
)

// maxAnnotationBytes bounds what a template may write.
const maxAnnotationBytes = 16 << 10

// Facts are what an annotation's template can say about its alert.
type Facts struct {
	Rule   string
	Signal string
	Labels map[string]string // of the alert, all of them: {{ .Labels.severity }}

	// The dimensions; "" where the rule does not group by one, or the spans do not state it.
	Service, Environment, Version, Step, Provider string

	// The numbers of the last evaluation that saw the breach.
	Failed, Total int64
	Ratio         string // "3.4 %"
	Threshold     string // "2 %"
	Window        string // "2m"
	For           string // how long a stall has lasted; "" of other signals
	At            time.Time
	StartsAt      time.Time

	// What the store adds; empty where it was not asked, or knows nothing.
	TopError      string // the most frequent error, as "RateLimitError 429"
	TopErrorCount int64
	Runs          []string // ids of up to three example runs
	Dashboard     string   // link, "" where no address of Grafana is set
	Command       string   // the command line that shows more
}

// Explanation is what only the store can say about an alert.
type Explanation struct {
	At            time.Time // the instant that it is about; zero where the store was not asked yet
	TopError      string
	TopErrorCount int64
	Runs          []string
	Dashboard     string
	Command       string // replaces the command that follows from the facts
}

// sampleFacts are what every template is executed against when its file is loaded.
func sampleFacts(r *Rule) Facts {
	at := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	var group signals.Labels
	for _, d := range signals.Dimensions() {
		group = group.With(d, "an example")
	}
	f := r.facts(group, at, at, 7, 120, 90*time.Second)
	return f.with(Explanation{
		TopError: "RateLimitError 429", TopErrorCount: 5, Runs: []string{"run-1", "run-2", "run-3"}, Dashboard: "http://127.0.0.1:3000/d/retryledger",
	})
}

// facts are the facts of the rule's alert on one group.
func (r *Rule) facts(group signals.Labels, startsAt, at time.Time, failed, total int64, lasted time.Duration) Facts {
	f := Facts{
		Rule: r.Name, Signal: string(r.Signal), Labels: r.alertLabels(group),
		Failed: failed, Total: total, Threshold: r.Threshold.String(), Window: strictyaml.Short(r.Window), At: at, StartsAt: startsAt,
	}
	for _, d := range r.GroupBy {
		value := group.Get(d)
		switch d {
		case signals.Service:
			f.Service = value
		case signals.Environment:
			f.Environment = value
		case signals.Version:
			f.Version = value
		case signals.Step:
			f.Step = value
		case signals.Provider:
			f.Provider = value
		}
	}
	if watchesItself(r.Signal) {
		f.Failed, f.Total, f.Threshold, f.For = 0, 0, "", strictyaml.Short(lasted.Round(time.Second))
		f.Command = "retryledger runs --since 15m"
		return f
	}
	f.Ratio = percentText(failed, total, r.Threshold)
	f.Command = "retryledger top --since " + at.Add(-r.Window).UTC().Format(time.RFC3339) + " --until " + at.UTC().Format(time.RFC3339)
	if f.Service != "" {
		f.Command += " --service " + shellWord(f.Service)
	}
	return f
}

// with adds what the store says.
func (f Facts) with(x Explanation) Facts {
	f.TopError, f.TopErrorCount, f.Dashboard = x.TopError, x.TopErrorCount, x.Dashboard
	f.Runs = x.Runs[:min(len(x.Runs), 3)]
	if x.Command != "" {
		f.Command = x.Command
	}
	return f
}

// percentText writes numerator ÷ denominator as a percentage with two decimals, or as
// many as it takes not to read as zero, nor as the threshold that it is not.
func percentText(numerator, denominator int64, threshold Threshold) string {
	if denominator <= 0 {
		return ""
	}
	share := float64(numerator) / float64(denominator) * 100
	decimals := 2
	if share > 0 && share < 0.01 {
		decimals = 6
	}
	for ; ; decimals++ {
		text := strconv.FormatFloat(share, 'f', decimals, 64)
		text = strings.TrimSuffix(strings.TrimRight(text, "0"), ".") + " %"
		if text != threshold.String() || decimals >= 12 || share == threshold.Ratio()*100 {
			return text
		}
	}
}

// shellWord quotes a word for a POSIX shell where it needs it.
func shellWord(word string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./:@%+,", r)
	}
	if word != "" && strings.TrimFunc(word, plain) == "" {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// annotation is one compiled template.
type annotation struct{ template *template.Template }

// newAnnotation compiles a template. What could run for long is refused: the only
// loop is over the example runs.
func newAnnotation(text string) (*annotation, error) {
	t, err := template.New("annotation").Option("missingkey=error").Parse(text)
	if err != nil {
		return nil, errors.New(strings.TrimPrefix(err.Error(), "template: annotation:")) //nolint:err113 // the cause is in it
	}
	if len(t.Templates()) > 1 {
		return nil, errors.New("an annotation is one template: {{define}} and {{block}} are not for it")
	}
	if t.Tree != nil {
		if err := checkNodes(t.Root, false); err != nil {
			return nil, err
		}
	}
	return &annotation{t}, nil
}

// checkNodes refuses loops over anything but .Runs, loops within loops, and calls of other templates.
func checkNodes(list *parse.ListNode, inLoop bool) error {
	if list == nil {
		return nil
	}
	for _, node := range list.Nodes {
		var err error
		switch n := node.(type) {
		case *parse.RangeNode:
			if inLoop || n.Pipe.String() != ".Runs" && !strings.HasSuffix(n.Pipe.String(), ":= .Runs") {
				return fmt.Errorf("{{range %s}} is not for an annotation: the only loop is {{range .Runs}}, once", n.Pipe)
			}
			err = errors.Join(checkNodes(n.List, true), checkNodes(n.ElseList, inLoop))
		case *parse.IfNode:
			err = errors.Join(checkNodes(n.List, inLoop), checkNodes(n.ElseList, inLoop))
		case *parse.WithNode:
			err = errors.Join(checkNodes(n.List, inLoop), checkNodes(n.ElseList, inLoop))
		case *parse.TemplateNode:
			return errors.New("{{template}} is not for an annotation")
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// render executes the template on an alert's facts.
func (a *annotation) render(f Facts) (string, error) {
	out := &cappedText{left: maxAnnotationBytes}
	if err := a.template.Execute(out, f); err != nil {
		return "", fmt.Errorf("execute the template: %w", err)
	}
	return strings.TrimSpace(out.text.String()), nil
}

var noField = regexp.MustCompile(`can't evaluate field (\S+) in type rules\.Facts`)

// templateMistake says what is wrong with a template in words of the file's author.
func templateMistake(err error) string {
	var failed template.ExecError
	if !errors.As(err, &failed) {
		return strings.ReplaceAll(err.Error(), "\n", " ")
	}
	text := failed.Err.Error()
	if _, at, ok := strings.Cut(text, `executing "annotation" at `); ok {
		text = "at " + at
	}
	if m := noField.FindStringSubmatch(text); m != nil {
		var names []string
		for _, f := range reflect.VisibleFields(reflect.TypeFor[Facts]()) {
			names = append(names, "."+f.Name)
		}
		text = fmt.Sprintf("there is no field .%s%s; there are %s", m[1], strictyaml.Meant("."+m[1], names), strings.Join(names, ", "))
	}
	return strings.ReplaceAll(text, "\n", " ")
}

// cappedText refuses to grow above its limit.
type cappedText struct {
	text strings.Builder
	left int
}

var errTooLong = fmt.Errorf("it writes more than %d bytes", maxAnnotationBytes)

func (c *cappedText) Write(p []byte) (int, error) {
	if len(p) > c.left {
		return 0, errTooLong
	}
	c.left -= len(p)
	return c.text.Write(p)
}

var _ io.Writer = (*cappedText)(nil)

// builtInAnnotations stand where neither a rule nor its file's defaults say something.
var builtInAnnotations = map[string]string{
	"summary": `{{ .Rule }}{{ if .For }}: {{ .For }}{{ else }}: {{ .Failed }} of {{ .Total }} ({{ .Ratio }}) within {{ .Window }}, the limit is {{ .Threshold }}{{ end }}`,
}

var builtInTemplates = sync.OnceValue(func() map[string]*annotation {
	compiled := make(map[string]*annotation, len(builtInAnnotations))
	for name, text := range builtInAnnotations {
		t, err := newAnnotation(text)
		if err != nil {
			panic(err) // every rule without annotations uses them
		}
		compiled[name] = t
	}
	return compiled
})
