package breakers

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/retryledger/retryledger/analysis/answer"
)

// Path is where the handler expects to be served, with all below it.
const Path = "/api/v1/breakers"

// HandlerSettings are what the handler needs. All are required but Logger.
type HandlerSettings struct {
	Set *Set
	// Now is of the clock of Set.Evaluate.
	Now func() time.Time
	// MaxSubscribers bounds the streams that are open at a time.
	MaxSubscribers int
	Logger         *zap.Logger
}

// DefaultMaxSubscribers suits HandlerSettings.
const DefaultMaxSubscribers = 256

// NewHandler answers at Path and below it:
//
//   - GET Path: Views, or the stream where a client accepts text/event-stream;
//   - GET Path/stream: the stream, server-sent events;
//   - GET Path/PROVIDER: a View, closed and stale for a provider that is not known;
//   - POST Path/PROVIDER/probe: a Permit to send one request.
//
// Streams end when the client goes, when it is too slow, and when Set.Close is called:
// do so before the server shuts down, which waits for them.
func NewHandler(settings HandlerSettings) http.Handler {
	if settings.Logger == nil {
		settings.Logger = zap.NewNop()
	}
	h := &handler{settings}
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+Path, h.plain(func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.Header.Get("Accept"), "text/event-stream") {
			h.stream(w, r)
			return
		}
		answer.Write(w, h.Logger, http.StatusOK, h.Set.Views(h.Now(), true))
	}))
	mux.HandleFunc("GET "+Path+"/stream", h.plain(h.stream))
	mux.HandleFunc("GET "+Path+"/{provider}", h.plain(func(w http.ResponseWriter, r *http.Request) {
		answer.Write(w, h.Logger, http.StatusOK, h.Set.View(r.PathValue("provider"), h.Now()))
	}))
	mux.HandleFunc("POST "+Path+"/{provider}/probe", h.plain(func(w http.ResponseWriter, r *http.Request) {
		answer.Write(w, h.Logger, http.StatusOK, h.Set.Permit(r.PathValue("provider"), h.Now()))
	}))
	for pattern, methods := range map[string]string{
		Path: "GET, HEAD", Path + "/{provider}": "GET, HEAD", Path + "/{provider}/probe": "POST",
	} {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Allow", methods)
			method, _, _ := strings.Cut(methods, ",")
			h.refuse(w, http.StatusMethodNotAllowed, errors.New("ask with "+method))
		})
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		h.refuse(w, http.StatusNotFound, fmt.Errorf(
			"there is nothing here; ask %[1]s, %[1]s/PROVIDER or %[1]s/stream, or POST %[1]s/PROVIDER/probe; write a / in a provider's name as %%2F", Path))
	})
	return mux
}

type handler struct{ HandlerSettings }

// plain refuses parameters: there are none.
func (h *handler) plain(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := answer.CheckParameters(r.URL.Path, r.URL.Query()); err != nil {
			h.refuse(w, http.StatusBadRequest, err)
			return
		}
		next(w, r)
	}
}

func (h *handler) refuse(w http.ResponseWriter, status int, err error) {
	answer.Write(w, h.Logger, status, answer.Failure{Error: err.Error()})
}
