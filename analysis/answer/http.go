package answer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"

	"go.uber.org/zap"
)

// RefusalError is why a question is not answered: a sentence for the asker that says how to
// mend it, and the status of HTTP.
type RefusalError struct {
	Status   int
	Sentence string
}

// Error implements error.
func (r *RefusalError) Error() string { return r.Sentence }

// Refuse makes a RefusalError.
func Refuse(status int, sentence string) error { return &RefusalError{status, sentence} }

// BadParameter refuses the value of a parameter.
func BadParameter(name, remedy string) error {
	return &RefusalError{http.StatusBadRequest, "parameter " + name + ": " + remedy}
}

// CheckParameters refuses parameters that a path does not take.
func CheckParameters(path string, values url.Values, taken ...string) error {
	for name := range values {
		if slices.Contains(taken, name) {
			continue
		}
		remedy := "it takes none"
		if len(taken) > 0 {
			remedy = "it takes " + strings.Join(taken, ", ")
		}
		return &RefusalError{http.StatusBadRequest, fmt.Sprintf("%s has no parameter %q; %s", path, name, remedy)}
	}
	return nil
}

// ErrNotReady refuses while there is no connection to the store.
var ErrNotReady = &RefusalError{http.StatusServiceUnavailable, "the store is not ready: it is still starting, or cannot be reached; the collector's log says which"}

// TookTooLong tells whether a question ended at its time limit. clickhouse-go gives its
// socket the context's deadline, so that either may be the first to say so.
func TookTooLong(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded)
}

// Write writes an answer as JSON.
func Write(w http.ResponseWriter, log *zap.Logger, status int, body any) {
	encoded, err := json.Marshal(body)
	if err != nil {
		log.Error("An answer could not be written as JSON", zap.Error(err))
		status, encoded = http.StatusInternalServerError, []byte(`{"error":"the answer could not be written as JSON; the collector's log says why"}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(encoded, '\n')) // an asker that is gone needs no answer
}
