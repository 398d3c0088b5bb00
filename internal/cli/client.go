package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/retryledger/retryledger/analysis/answer"
)

// DefaultServer is where the collector's API listens by default.
const DefaultServer = "http://127.0.0.1:4320"

// serverVariable names the environment variable that replaces DefaultServer.
const serverVariable = "RETRYLEDGER_SERVER"

// tokenVariable names the environment variable that holds a bearer token for an API
// that asks for one. A flag would show it in the list of processes.
const tokenVariable = "RETRYLEDGER_TOKEN" //nolint:gosec // a name, no credential

// maxAnswer bounds what is read of an answer, in bytes.
const maxAnswer = 256 << 20

// client asks a collector's HTTP API.
type client struct {
	base  *url.URL
	token string
	http  *http.Client
}

func newClient(env Environment, server string) (*client, error) {
	source := "--server"
	if server == "" {
		server, source = env.Getenv(serverVariable), serverVariable
	}
	if server == "" {
		server = DefaultServer
	}
	if !strings.Contains(server, "://") {
		server = "http://" + server
	}
	base, err := url.Parse(server)
	if err != nil || base.Host == "" || base.Scheme != "http" && base.Scheme != "https" {
		return nil, fail(ExitUsage, "%s %s: write the collector's API as %s", source, server, DefaultServer)
	}
	return &client{base: base, token: env.Getenv(tokenVariable), http: &http.Client{Timeout: 2 * time.Minute}}, nil
}

// get asks for a path below the API and decodes its answer into out.
func (c *client) get(ctx context.Context, out any, query url.Values, path ...string) error {
	return c.ask(ctx, out, http.MethodGet, query, nil, path...)
}

func (c *client) ask(ctx context.Context, out any, method string, query url.Values, body []byte, path ...string) error {
	target := c.base.JoinPath(path...)
	target.RawQuery = query.Encode()
	request, err := http.NewRequestWithContext(ctx, method, target.String(), bytes.NewReader(body))
	if err != nil {
		return fail(ExitUsage, "ask %s: %w", c.base.Host, err)
	}
	request.Header.Set("Accept", "application/json")
	if c.token != "" {
		request.Header.Set("Authorization", "Bearer "+c.token)
	} else if user := c.base.User; user != nil {
		password, _ := user.Password()
		request.SetBasicAuth(user.Username(), password)
	}
	response, err := c.http.Do(request)
	if err != nil {
		return c.unreachable(ctx, err)
	}
	defer func() { _ = response.Body.Close() }()
	answered, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
	if err != nil {
		return c.unreachable(ctx, err)
	}
	if len(answered) > maxAnswer {
		return fail(ExitUnreachable, "the answer of %s is larger than %d bytes; ask for less with --limit or --since", c.base.Host, maxAnswer)
	}
	if response.StatusCode != http.StatusOK {
		return c.refused(response.StatusCode, answered)
	}
	if err := json.Unmarshal(answered, out); err != nil {
		return fail(ExitUnreachable, "%s is no retryledger API: %w; point --server at one, by default %s", c.base.Host, err, DefaultServer)
	}
	return nil
}

// unreachable says what to do when no collector answers.
func (c *client) unreachable(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("ask %s: %w", c.base.Host, ctx.Err())
	}
	var cause *url.Error
	if errors.As(err, &cause) {
		err = cause.Err
	}
	return fail(ExitUnreachable, "no answer from %s: %w\nIs the collector running? Start it with: go run ./cmd/collector\n"+
		"If its API listens elsewhere, say where with --server or %s.", c.base.Host, err, serverVariable)
}

// refused turns an answer that is not 200 into its sentence.
func (c *client) refused(status int, body []byte) error {
	if status == http.StatusUnauthorized || status == http.StatusForbidden && len(body) == 0 {
		return fail(ExitUnreachable, "%s wants to know who asks; set %s to a bearer token, or write user:password@ into --server", c.base.Host, tokenVariable)
	}
	var failure answer.Failure
	if err := json.Unmarshal(body, &failure); err != nil || failure.Error == "" {
		return fail(ExitUnreachable, "%s answered %d %s without saying why; is it a retryledger API?", c.base.Host, status, http.StatusText(status))
	}
	code := ExitUnreachable
	switch status {
	case http.StatusNotFound, http.StatusConflict:
		code = ExitNoAnswer
	case http.StatusBadRequest:
		code = ExitUsage
	}
	sentence := clean(failure.Error)
	for _, candidate := range failure.Candidates {
		sentence += fmt.Sprintf("\n  %s  trace %s  %s  ended %s", clean(candidate.RunID), clean(candidate.TraceID),
			clean(candidate.Service), candidate.EndedAt.UTC().Format(time.RFC3339))
	}
	return fail(code, "%s", sentence)
}
