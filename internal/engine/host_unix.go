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

	c, err := readHostConfig(args[0])
	if err != nil {
		return hostFails(err)
	}
	parent, err := syscall.Dup(0)
	if err != nil {
		return hostFails(fmt.Errorf("keep standard input: %w", err))
	}
	syscall.CloseOnExec(parent)
	go func() {
		_, _ = io.Copy(io.Discard, os.NewFile(uintptr(parent), "parent"))
		stop <- "standard input ended"
	}()
	terminal, err := terminalAsStdin()
	if err != nil {
		return hostFails(fmt.Errorf("give the engine a pseudo-terminal (/dev/ptmx and /dev/pts must be there): %w", err))
	}
	ended := make(chan error, 1)
	go func() { ended <- runLibrary(c.Library, c.arguments()) }()
	select {
	case err := <-ended:
		if err == nil {
			err = errors.New("the engine ended by itself")
		}
		return hostFails(err)
	case why := <-stop:
		fmt.Fprintf(os.Stderr, "%sending at %s: %s\n", hostSays, time.Now().UTC().Format(time.RFC3339), why)
	}
	ctx, cancel := context.WithTimeout(context.Background(), hostGrace)
	defer cancel()
	endQueries(ctx, c)
	terminal.Close()
	select {
	case <-ended: //nolint:errcheck // how it ended is the log's to say
		return 0
	case <-ctx.Done():
		fmt.Fprintln(os.Stderr, hostSays+"the engine did not end in time")
		return hostExitForced
	}
}

func hostFails(err error) int {
	fmt.Fprintln(os.Stderr, hostSays+err.Error())
	return hostExitFailed
}

// endQueries ends the queries of the engine's clients, for which it would wait.
// An engine that is only just starting has none, and refuses the connection.
// (There is nothing to flush: the library runs asynchronous inserts at once.)
func endQueries(ctx context.Context, c hostConfig) {
	pw, err := os.ReadFile(c.PasswordFile)
	if err != nil {
		return
	}
	conn, err := clickhouse.Open(&clickhouse.Options{
		Addr:        []string{net.JoinHostPort(dialHost(c.ListenHost), fmt.Sprint(c.Port))},
		Auth:        clickhouse.Auth{Username: User, Password: strings.TrimSpace(string(pw))},
		DialTimeout: time.Second,
	})
	if err != nil {
		return
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, hostGrace/4)
	defer cancel()
	if err := conn.Exec(ctx, "KILL QUERY WHERE query NOT LIKE 'KILL QUERY%' ASYNC"); err != nil {
		fmt.Fprintf(os.Stderr, "%send the clients' queries: %v\n", hostSays, err)
	}
}

// terminalAsStdin makes a new pseudo-terminal the standard input of this
// process and returns its other end. The calls are libc's, which purego makes
// on every platform alike.
func terminalAsStdin() (*os.File, error) {
	var (
		openpt   func(flags int32) int32
		grantpt  func(fd int32) int32
		unlockpt func(fd int32) int32
		ptsname  func(fd int32) string
		dup2     func(from, to int32) int32
	)
	for name, fn := range map[string]any{"posix_openpt": &openpt, "grantpt": &grantpt, "unlockpt": &unlockpt, "ptsname": &ptsname, "dup2": &dup2} {
		sym, err := purego.Dlsym(purego.RTLD_DEFAULT, name)
		if err != nil {
			return nil, err
		}
		purego.RegisterFunc(fn, sym)
	}
	fd := openpt(syscall.O_RDWR | syscall.O_NOCTTY)
	if fd < 0 {
		return nil, errors.New("posix_openpt failed")
	}
	syscall.CloseOnExec(int(fd))
	master := os.NewFile(uintptr(fd), "terminal")
	if grantpt(fd) != 0 || unlockpt(fd) != 0 {
		master.Close()
		return nil, errors.New("grantpt or unlockpt failed")
	}
	slave, err := syscall.Open(ptsname(fd), syscall.O_RDWR|syscall.O_NOCTTY|syscall.O_CLOEXEC, 0)
	if err != nil {
		master.Close()
		return nil, err
	}
	defer syscall.Close(slave)
	if dup2(int32(slave), 0) < 0 {
		master.Close()
		return nil, errors.New("dup2 failed")
	}
	return master, nil
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
