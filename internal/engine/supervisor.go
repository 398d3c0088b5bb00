package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"go.uber.org/zap"
)

// State is where an engine is in its life.
type State string

// States of an engine.
const (
	StateStarting   State = "starting"
	StateReady      State = "ready"
	StateRestarting State = "restarting" // it died; the next start is due or under way
	StateStopped    State = "stopped"
)

// Status is a snapshot of an engine for health reports.
type Status struct {
	State   State
	Since   time.Time // of State
	PID     int       // of the engine's process, 0 if there is none
	Crashes int       // unwanted ends of the process since Start
	LastErr error     // why it last ended or could not start; nil if it never did
}

// process is one process of the engine. A child is one; tests have others.
type process interface {
	id() int
	exited() <-chan struct{} // closed when it has ended
	reason() error           // why it ended; asked after exited
	end()                    // asks it to end, then makes it; returns when it has
	kill()
}

// Engine is an embedded ClickHouse that is kept running until Shutdown.
type Engine struct {
	opts   Options
	layout layout
	log    *zap.Logger
	addr   string
	pw     string
	lock   *dirLock
	ping   interface {
		Ping(context.Context) error
		Close() error
	}

	mu      sync.Mutex
	status  Status
	current process // nil while there is no process

	pinging sync.WaitGroup
	random  func() float64                         // in [0, 1)
	start   func(context.Context) (process, error) // startChild, but in tests
	stop    context.CancelFunc                     // tells run to end
	done    chan struct{}                          // closed when run has ended and the lock is free
}

// Start runs an engine on opts.DataDir and returns when it answers. ctx bounds
// the start only; the engine runs until Shutdown. A data folder that another
// engine holds gives a *LockedError.
func Start(ctx context.Context, opts Options) (_ *Engine, err error) {
	if opts, err = opts.withDefaults(); err != nil {
		return nil, err
	}
	if os.Getenv(HostEnv) != "" {
		// Without this, each process would start the next one.
		return nil, fmt.Errorf("engine: this process was started to be an engine and starts one itself: hand os.Args[2:] to HostMain when os.Args[1] is %q (in a test: import enginetest)", HostCommand)
	}
	d := layoutOf(opts.DataDir)
	for _, dir := range []string{d.dir, d.store, d.logDir} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, fmt.Errorf("engine: create data_dir %s (choose one that this user may write): %w", opts.DataDir, err)
		}
	}
	lock, err := lockDir(ctx, d, opts.LockWait)
	if err != nil {
		return nil, err
	}
	e := &Engine{
		opts: opts, layout: d, log: opts.Logger, lock: lock,
		status: Status{State: StateStarting, Since: time.Now()},
		done:   make(chan struct{}),
	}
	e.start, e.random = e.startChild, rand.Float64
	defer func() {
		if err != nil {
			if e.ping != nil {
				e.ping.Close()
			}
			_ = lock.release() // the start failed already
		}
	}()
	if opts.Library == "" {
		opts.Library, err = Library(ctx, opts.CacheDir, opts.Progress, opts.Logger)
		if err != nil {
			return nil, err
		}
		e.opts.Library = opts.Library
	}
	if e.pw, err = password(d.dir); err != nil {
		return nil, err
	}
	first, err := e.firstChild(ctx)
	if err != nil {
		return nil, err
	}
	run, stop := context.WithCancel(context.Background())
	e.stop = stop
	go e.run(run, first) //nolint:contextcheck // it outlives the start, which alone ctx bounds
	return e, nil
}

// firstChild settles the address and starts the engine for the first time. If
// a free port it picked is taken before the engine gets there, it picks again.
func (e *Engine) firstChild(ctx context.Context) (process, error) {
	host, port, _ := net.SplitHostPort(e.opts.Listen)
	for attempt := 1; ; attempt++ {
		l, err := net.Listen("tcp", e.opts.Listen) //nolint:noctx // on this machine, at once
		if err != nil {
			return nil, takenError("listen", e.opts.Listen, err)
		}
		_, picked, _ := net.SplitHostPort(l.Addr().String()) // as net itself wrote it
		e.addr = net.JoinHostPort(host, picked)
		l.Close()
		if e.ping != nil {
			e.ping.Close()
		}
		if e.ping, err = clickhouse.Open(e.pingOptions()); err != nil {
			return nil, fmt.Errorf("engine: client for %s: %w", e.addr, err)
		}
		if err := e.writeConfig(); err != nil {
			return nil, err
		}
		sctx, cancel := context.WithTimeout(ctx, e.opts.StartTimeout)
		c, err := e.start(sctx)
		cancel()
		if err == nil {
			return c, nil
		}
		if ctx.Err() != nil || port != "0" || attempt == 3 || portFree(e.addr) == nil {
			return nil, err
		}
	}
}

func takenError(option, addr string, err error) error {
	return fmt.Errorf("engine: %s: the address %s cannot be used (%w): stop the program that has it, or set %s to another address, with port 0 for any free port", option, addr, err, option)
}

// portFree says whether somebody could listen on addr now.
func portFree(addr string) error {
	l, err := net.Listen("tcp", addr) //nolint:noctx // on this machine, at once
	if err != nil {
		return err
	}
	return l.Close()
}

// writeConfig lays out the files that the child reads.
func (e *Engine) writeConfig() error {
	host, port, _ := net.SplitHostPort(e.addr)
	p, _ := strconv.Atoi(port)
	hc, err := json.Marshal(hostConfig{
		Library: e.opts.Library, Config: e.layout.configXML, Store: e.layout.store, PasswordFile: e.layout.pwd,
		ListenHost: host, Port: p, HTTPPort: e.opts.HTTPPort, LogLevel: e.opts.LogLevel,
	})
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(e.layout.noFile), 0o700); err != nil {
		return fmt.Errorf("engine: write the configuration: %w", err)
	}
	for path, data := range map[string][]byte{
		e.layout.configXML: serverConfig(e.opts, e.layout),
		e.layout.usersXML:  usersConfig(e.opts, e.pw),
		e.layout.hostJSON:  hc,
		e.layout.noFile:    []byte(noFile),
	} {
		if err := writeFile(path, data); err != nil {
			return fmt.Errorf("engine: write the configuration: %w", err)
		}
	}
	if err := e.lock.record(e.addr); err != nil {
		return fmt.Errorf("engine: write the lock of data_dir %s: %w", e.layout.dir, err)
	}
	return nil
}

// startChild starts the engine's process and waits until it answers.
func (e *Engine) startChild(ctx context.Context) (process, error) {
	if err := portFree(e.addr); err != nil {
		return nil, takenError("listen", e.addr, err)
	}
	if e.opts.HTTPPort != 0 {
		host, _, _ := net.SplitHostPort(e.addr)
		addr := net.JoinHostPort(host, strconv.Itoa(e.opts.HTTPPort))
		if err := portFree(addr); err != nil {
			return nil, takenError("http_port", addr, err)
		}
	}
	begin := time.Now()
	c, err := launch(e.layout, e.lock.file)
	if err != nil {
		return nil, err
	}
	e.setProcess(c)
	for {
		select {
		case <-c.exited():
			e.setProcess(nil)
			return nil, fmt.Errorf("engine: ClickHouse ended while starting: %w", c.reason())
		default:
		}
		pctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		err := e.ping.Ping(pctx)
		cancel()
		if err == nil {
			break
		}
		// An engine that could not listen waits at its prompt all the same.
		if s := c.complaint(); s != "" {
			c.end()
			e.setProcess(nil)
			return nil, fmt.Errorf("engine: ClickHouse could not start at %s: %s", e.addr, s)
		}
		select {
		case <-c.exited():
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			c.end()
			e.setProcess(nil)
			return nil, fmt.Errorf("engine: ClickHouse gave no answer at %s within %s (%w; last: %w); see %s", e.addr, time.Since(begin).Round(time.Millisecond), ctx.Err(), err, e.layout.engineLog)
		}
	}
	e.setState(StateReady, nil)
	e.log.Info("the embedded ClickHouse is ready", zap.String("addr", e.addr), zap.Int("pid", c.id()), zap.Duration("after", time.Since(begin)))
	return c, nil
}

// run keeps the engine running from its first child on until ctx ends.
func (e *Engine) run(ctx context.Context, c process) {
	defer close(e.done)
	defer func() { _ = e.lock.release() }() // the process ends with its locks
	defer e.ping.Close()
	defer e.pinging.Wait()
	b := newBackoff(e.random)
	for {
		readyAt := time.Now()
		why := e.watch(ctx, c)
		if ctx.Err() != nil {
			e.ping.Close() // an idle client delays the end by up to a second
			c.end()
			e.setProcess(nil)
			e.setState(StateStopped, nil)
			return
		}
		if time.Since(readyAt) >= backoffReset {
			b.reset()
		}
		for {
			if ctx.Err() != nil { // why is that we ended it
				e.setState(StateStopped, nil)
				return
			}
			wait := b.next()
			e.crashed(why)
			e.log.Error("the embedded ClickHouse is down and is started again", zap.Error(why), zap.Duration("in", wait))
			select {
			case <-ctx.Done():
				e.setState(StateStopped, nil)
				return
			case <-time.After(wait):
			}
			sctx, cancel := context.WithTimeout(ctx, e.opts.StartTimeout)
			c, why = e.start(sctx)
			cancel()
			if why == nil {
				break
			}
		}
	}
}

const (
	watchEvery    = 10 * time.Second
	watchPatience = 6 // silent pings in a row before the engine counts as hung
)

// watch returns when the process has ended, and ends it when it has not
// answered for a minute. It says why; on the end of ctx it returns at once.
func (e *Engine) watch(ctx context.Context, c process) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	pings := make(chan error)
	// A ping of a hung engine only ends with its process, so run waits for
	// this and not we.
	e.pinging.Go(func() {
		t := time.NewTicker(watchEvery)
		defer t.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-t.C:
			}
			pctx, cancel := context.WithTimeout(ctx, watchEvery)
			err := e.ping.Ping(pctx)
			cancel()
			select {
			case <-ctx.Done():
				return
			case pings <- err:
			}
		}
	})
	for silent := 0; ; {
		select {
		case <-ctx.Done():
			return nil
		case <-c.exited():
			e.setProcess(nil)
			return c.reason()
		case err := <-pings:
			if err == nil {
				silent = 0
				continue
			}
			silent++
			if silent < watchPatience {
				continue
			}
			c.kill()
			<-c.exited()
			e.setProcess(nil)
			return fmt.Errorf("it gave no answer to %d pings in a row: %w", silent, err)
		}
	}
}

// Addr is the host:port of the native protocol. It stays the same until
// Shutdown, over every restart of the engine.
func (e *Engine) Addr() string { return e.addr }

// PasswordFile is the path of the file with the password of User.
func (e *Engine) PasswordFile() string { return e.layout.pwd }

// DataDir is the absolute path of the data folder.
func (e *Engine) DataDir() string { return e.layout.dir }

// ClientOptions are new options for a client of this engine, logged in as
// User. No database is chosen: the one called "default" is not a usual one in
// the library, so create your own and set Auth.Database.
func (e *Engine) ClientOptions() *clickhouse.Options {
	return &clickhouse.Options{
		Addr:        []string{dialAddr(e.addr)},
		Auth:        clickhouse.Auth{Username: User, Password: e.pw},
		DialTimeout: 5 * time.Second,
		Compression: &clickhouse.Compression{Method: clickhouse.CompressionLZ4},
	}
}

func (e *Engine) pingOptions() *clickhouse.Options {
	o := e.ClientOptions()
	o.MaxOpenConns, o.MaxIdleConns = 1, 1
	return o
}

// dialHost is the host to dial for an engine that listens on host.
func dialHost(host string) string {
	switch host {
	case "0.0.0.0":
		return "127.0.0.1"
	case "::":
		return "::1"
	}
	return host
}

func dialAddr(addr string) string {
	host, port, _ := net.SplitHostPort(addr)
	return net.JoinHostPort(dialHost(host), port)
}

// Status says how the engine is.
func (e *Engine) Status() Status {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.status
}

// Crashes counts the unwanted ends of the engine's process since Start, failed
// starts included.
func (e *Engine) Crashes() int { return e.Status().Crashes }

func (e *Engine) setState(s State, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.status.State != s {
		e.status.State, e.status.Since = s, time.Now()
	}
	if err != nil {
		e.status.LastErr = err
	}
}

func (e *Engine) setProcess(c process) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.current, e.status.PID = c, 0
	if c != nil {
		e.status.PID = c.id()
	}
}

func (e *Engine) crashed(why error) {
	e.setState(StateRestarting, why)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.status.Crashes++
}

// Shutdown ends the engine, its tables closed in order, and frees the data
// folder. When ctx ends first the engine is killed, which loses nothing that
// it confirmed. It may be called more than once.
func (e *Engine) Shutdown(ctx context.Context) error {
	e.stop()
	select {
	case <-e.done:
		return nil
	case <-ctx.Done():
	}
	e.mu.Lock()
	if e.current != nil {
		e.current.kill()
	}
	e.mu.Unlock()
	<-e.done
	return fmt.Errorf("engine: killed, since it had not ended in time: %w", ctx.Err())
}
