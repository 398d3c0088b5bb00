//go:build linux || darwin

package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ebitengine/purego"
)

// Exit codes of a host.
const (
	hostExitFailed = 1 // the engine could not start, or ended by itself
	hostExitForced = 3 // told to end, and the engine did not within hostGrace
)

// hostGrace is how long a host that was told to end lets the engine close its
// tables. What the engine confirmed is on disk either way.
const hostGrace = 4 * time.Second

// lockFD is the data folder's lock, inherited from the parent: a flock belongs
// to the open file, so it stays held until this process is gone too.
const lockFD = 3

// HostMain is the body of the process that carries the engine; args are the
// arguments after HostCommand. It returns the exit code once the engine has
// ended, which it does when standard input ends (the parent has gone or says
// so), on SIGTERM or SIGINT, or when it fails.
func HostMain(args []string) int {
	if len(args) != 1 {
		fmt.Fprintf(os.Stderr, "%s is started by the collector itself and takes the path of its configuration\n", HostCommand)
		return hostExitFailed
	}
	syscall.CloseOnExec(lockFD)
	dieWithParent()
	stop := make(chan string, 3)
	sig := make(chan os.Signal, 2)
	signal.Ignore(syscall.SIGHUP, syscall.SIGPIPE)
	signal.Notify(sig, syscall.SIGTERM, syscall.SIGINT)
	go func() { stop <- "signal: " + (<-sig).String() }()
	go func() {
		io.Copy(io.Discard, os.Stdin)
		stop <- "standard input ended"
	}()

	c, err := readHostConfig(args[0])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return hostExitFailed
	}
	ended := make(chan error, 1)
	go func() { ended <- runLibrary(c.Library, c.arguments()) }()
	select {
	case err := <-ended:
		if err == nil {
			err = errors.New("the engine ended by itself")
		}
		fmt.Fprintln(os.Stderr, err)
		return hostExitFailed
	case why := <-stop:
		fmt.Fprintf(os.Stderr, "%s ending: %s\n", time.Now().UTC().Format(time.RFC3339), why)
	}
	ctx, cancel := context.WithTimeout(context.Background(), hostGrace)
	defer cancel()
	go endKeepAlive(ctx, c)
	select {
	case <-ended:
		return 0
	case <-ctx.Done():
		fmt.Fprintln(os.Stderr, "the engine did not end in time")
		return hostExitForced
	}
}

// endKeepAlive kills the query that keeps the engine running, which lets the
// library close its tables in order. It tries until ctx ends, since the engine
// may still be starting.
func endKeepAlive(ctx context.Context, c hostConfig) {
	pw, err := os.ReadFile(c.PasswordFile)
	if err != nil {
		return
	}
	for ctx.Err() == nil {
		conn, err := clickhouse.Open(&clickhouse.Options{
			Addr:        []string{net.JoinHostPort(dialHost(c.ListenHost), fmt.Sprint(c.Port))},
			Auth:        clickhouse.Auth{Username: User, Password: strings.TrimSpace(string(pw))},
			DialTimeout: time.Second,
		})
		if err == nil {
			// The engine's own session appears there without a user.
			err = conn.Exec(ctx, "KILL QUERY WHERE user = '' AND query LIKE '%sleepEachRow%' ASYNC")
			conn.Close()
		}
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// runLibrary opens the library and runs ClickHouse in it until it returns.
func runLibrary(path string, args []string) error {
	// ClickHouse keeps thread-local state between the calls.
	runtime.LockOSThread()
	lib, err := purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil {
		return fmt.Errorf("open the ClickHouse library %s: %w", path, err)
	}
	var (
		query       func(argc int32, argv unsafe.Pointer) unsafe.Pointer
		resultError func(result unsafe.Pointer) string
		handlers    func(enabled int32)
	)
	for name, fn := range map[string]any{
		"chdb_query_cmdline":               &query,
		"chdb_result_error":                &resultError,
		"chdb_set_signal_handlers_enabled": &handlers,
	} {
		sym, err := purego.Dlsym(lib, name)
		if err != nil {
			return fmt.Errorf("the ClickHouse library %s has no %s: is it %s of %s? %w", path, name, packageScope+"<platform>", Version, err)
		}
		purego.RegisterFunc(fn, sym)
	}
	// Go's handlers run on a stack of their own and expect to see every signal
	// first; ClickHouse's would replace them.
	handlers(0)

	argv := make([]*byte, len(args)+1)
	for i, a := range args {
		b, err := syscall.BytePtrFromString(a)
		if err != nil {
			return fmt.Errorf("argument %q: %w", a, err)
		}
		argv[i] = b
	}
	var pin runtime.Pinner
	defer pin.Unpin()
	for _, p := range argv[:len(args)] {
		pin.Pin(p)
	}
	res := query(int32(len(args)), unsafe.Pointer(&argv[0]))
	if res == nil {
		return errors.New("the engine returned no result")
	}
	if msg := resultError(res); msg != "" {
		return fmt.Errorf("the engine ended: %s", msg)
	}
	return nil
}
