package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/retryledger/retryledger/analysis/answer"
	"github.com/retryledger/retryledger/internal/replay"
)

// DefaultServer is where the collector's API listens by default.
const DefaultServer = "http://127.0.0.1:4320"

// maxAnswer bounds what is read of an answer, in bytes.
const maxAnswer = 256 << 20

// client asks a collector's HTTP API.
type client struct {
	base                *url.URL
	access              replay.Access
	http                *http.Client
	askedForCertificate atomic.Bool // by the server
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
	c.access.Authorize(request)
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

func interrupted(host string, err error) error { return fmt.Errorf("ask %s: %w", host, err) }

// refused turns an answer that is not 200 into its sentence.
func (c *client) refused(status int, body []byte) error {
	if status == http.StatusUnauthorized || status == http.StatusForbidden && len(body) == 0 {
		if c.access.Authorization != "" {
			what := "the token"
			if strings.HasPrefix(c.access.Authorization, "Basic ") {
				what = "the user or the password"
			}
			return fail(ExitUnreachable, "%s refused %s; see %s, --token-file and the address in %s for another one", c.base.Host, what, tokenVariable, serverVariable)
		}
		return fail(ExitUnreachable, "%s wants to know who asks; set %s to a bearer token or name its file with --token-file, or write user:password@ into %s", c.base.Host, tokenVariable, serverVariable)
	}
	var failure answer.Failure
	if err := json.Unmarshal(body, &failure); err != nil || failure.Error == "" {
		remedy := "is it a retryledger API?"
		if bytes.Contains(body, []byte("HTTP request to an HTTPS server")) {
			remedy = "it speaks TLS: write https:// where it is named"
		}
		return fail(ExitUnreachable, "%s answered %d %s without saying why; %s", c.base.Host, status, http.StatusText(status), remedy)
	}
	code := ExitUnreachable
	switch status {
	case http.StatusNotFound, http.StatusConflict:
		code = ExitNoAnswer
	case http.StatusBadRequest:
		code = ExitUsage
	}
	return fail(code, "%s", clean(failure.Error)+candidates(failure.Candidates))
}

// candidates lists the runs that an id fits, a line each.
func candidates(runs []answer.Candidate) (lines string) {
	for _, candidate := range runs {
		lines += fmt.Sprintf("\n  %s  trace %s  %s  ended %s", clean(candidate.RunID), clean(candidate.TraceID),
			clean(candidate.Service), candidate.EndedAt.UTC().Format(time.RFC3339))
	}
	return lines
}
