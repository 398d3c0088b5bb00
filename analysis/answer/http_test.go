package answer

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

func TestCheckParameters(t *testing.T) {
	t.Parallel()
	require.NoError(t, CheckParameters("/x", url.Values{"since": nil}, "since", "until"))
	require.EqualError(t, CheckParameters("/x", url.Values{"bogus": nil}, "since", "until"), `/x has no parameter "bogus"; it takes since, until`)
	err := CheckParameters("/x", url.Values{"bogus": nil})
	require.EqualError(t, err, `/x has no parameter "bogus"; it takes none`)
	var refusal *RefusalError
	require.ErrorAs(t, err, &refusal)
	assert.Equal(t, http.StatusBadRequest, refusal.Status)
}

func TestWrite(t *testing.T) {
	t.Parallel()
	core, logs := observer.New(zap.ErrorLevel)
	write := func(body any) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		Write(w, zap.New(core), http.StatusTeapot, body)
		return w
	}
	w := write(Failure{Error: "no"})
	assert.Equal(t, http.StatusTeapot, w.Code)
	assert.Equal(t, "application/json", w.Header().Get("Content-Type"))
	assert.JSONEq(t, `{"error":"no"}`, w.Body.String())
	w = write(math.NaN())
	assert.Equal(t, http.StatusInternalServerError, w.Code)
	assert.Contains(t, w.Body.String(), "the collector's log says why")
	assert.Equal(t, 1, logs.Len())
}

// A socket whose deadline is the context's may be the first to say that time is up.
func TestTookTooLong(t *testing.T) {
	t.Parallel()
	near, far := net.Pipe()
	defer func() { _, _ = near.Close(), far.Close() }()
	require.NoError(t, near.SetReadDeadline(time.Unix(1, 0)))
	_, socket := near.Read(make([]byte, 1))
	require.NotErrorIs(t, socket, context.DeadlineExceeded)
	assert.True(t, TookTooLong(fmt.Errorf("read the packet: %w", socket)))
	assert.True(t, TookTooLong(fmt.Errorf("ask the store: %w", context.DeadlineExceeded)))
	assert.False(t, TookTooLong(context.Canceled))
	assert.False(t, TookTooLong(errors.New("a timeout, it says")))
}
