package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/retryledger/retryledger/internal/engine"
)

// newEngineCommand runs an engine without a collector.
func newEngineCommand() *cobra.Command {
	var (
		opts   engine.Options
		memory string
	)
	cmd := &cobra.Command{
		Use:   "engine",
		Short: "Runs the ledger's engine alone, for several collectors to share",
		Long: `Runs one engine (ClickHouse) in the foreground, for several collectors to share.
Each of them then names it as the endpoint of its extension retryledger_store,
with the user and the password that this command prints where to find.`,
		Example: `  collector engine --data-dir /var/lib/retryledger/engine --listen 127.0.0.1:9000`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if memory != "" {
				bytes, err := humanize.ParseBytes(memory)
				if err != nil || bytes > 1<<60 {
					return fmt.Errorf("--memory-limit=%s is no amount of memory such as 2GiB", memory)
				}
				opts.MemoryLimit = int64(bytes)
			}
			if opts.DataDir == "" {
				return fmt.Errorf("name a folder for the data with --data-dir, for example --data-dir=%s", exampleDataDir())
			}
			opts.Logger = terminalLogger()
			return engine.RunShared(cmd.Context(), opts, cmd.OutOrStdout())
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&opts.DataDir, "data-dir", "", "folder of the data, one engine at a time")
	flags.StringVar(&opts.Listen, "listen", engine.DefaultSharedListen, "address of ClickHouse's native protocol, an IP address and a port")
	flags.BoolVar(&opts.Unencrypted, "unencrypted", false, "let --listen be an address that other machines reach, although nothing on it is encrypted")
	flags.IntVar(&opts.HTTPPort, "http-port", 0, "port of ClickHouse's HTTP interface, which is closed by default")
	flags.StringVar(&memory, "memory-limit", "", "most memory the engine may use, for example 2GiB (default half of the machine's, at most 4GiB)")
	return cmd
}

func exampleDataDir() string {
	home, err := os.UserHomeDir()
	if err != nil {
		return "/var/lib/retryledger/engine"
	}
	return filepath.Join(home, ".local", "share", "retryledger", "shared-engine")
}

// terminalLogger writes warnings and errors to standard error, as the collector's does.
func terminalLogger() *zap.Logger {
	encoder := zap.NewProductionEncoderConfig()
	encoder.EncodeTime = zapcore.ISO8601TimeEncoder
	return zap.New(zapcore.NewCore(zapcore.NewConsoleEncoder(encoder), zapcore.Lock(os.Stderr), zap.WarnLevel))
}
