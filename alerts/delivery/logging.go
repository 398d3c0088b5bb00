package delivery

import (
	"log/slog"

	"go.uber.org/zap"
	"go.uber.org/zap/exp/zapslog"
)

// bridge lets Alertmanager's packages, which log with slog, log through the collector's logger.
func bridge(logger *zap.Logger) *slog.Logger {
	return slog.New(zapslog.NewHandler(logger.Core(), zapslog.WithName("alertmanager"), zapslog.AddStacktraceAt(slog.LevelError+1)))
}

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }
