package engine

import (
	"context"
	"fmt"
	"io"
	"net"
	"time"
)

// RunShared runs one engine that several collectors share by its address, in
// the foreground until ctx ends. opts.Listen is DefaultSharedListen if empty.
// It writes to out how the engine is reached.
func RunShared(ctx context.Context, opts Options, out io.Writer) error {
	if opts.Listen == "" {
		opts.Listen = DefaultSharedListen
	}
	if opts.Progress == nil {
		var step string
		opts.Progress = func(p Progress) {
			if p.Step != step {
				step = p.Step
				fmt.Fprintln(out, p)
			}
		}
	}
	e, err := Start(ctx, opts)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "ClickHouse %s listens at %s\n  user      %s\n  password  in %s\n  data      %s\n", Version, e.Addr(), User, e.PasswordFile(), e.DataDir())
	if opts.HTTPPort != 0 {
		host, _, _ := net.SplitHostPort(e.Addr())
		fmt.Fprintf(out, "  http      %s\n", net.JoinHostPort(host, fmt.Sprint(opts.HTTPPort)))
	}
	if host, _, _ := net.SplitHostPort(e.Addr()); !isLoopback(host) {
		fmt.Fprintf(out, "  It can be reached from other machines, without encryption: let only a trusted network reach it.\n")
	}
	<-ctx.Done()
	fmt.Fprintln(out, "ClickHouse is ending")
	sctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	return e.Shutdown(sctx)
}
