package delivery

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if settings := os.Getenv(childVariable); settings != "" {
		runChild(settings)
		return
	}
	goleak.VerifyTestMain(m)
}
