//go:build linux || darwin

package enginetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/gofrs/flock"

	"github.com/retryledger/retryledger/internal/engine"
)

// The shared engine is started by a keeper, a process that outlives the test
// process that started it and ends by itself. Its folder holds:
//
//	gate    locked while somebody starts or ends the shared engine
//	lease   locked shared by every test process until it ends, by whatever way
//	keeper  locked by the keeper for as long as it lives
//	state   where the engine is, written once it answers
//	run-*   the engine's data, a new one for every keeper
//
// Locks, not records of pids: the kernel frees them, however a process ends.
const (
	keeperEnv = "RETRYLEDGER_ENGINETEST_KEEPER" // the folder

	// layoutVersion changes with the meaning of anything in the folder, so
	// that test binaries of different versions do not meet in it.
	layoutVersion = "2"

	// linger is how long the engine waits for the next test process: go test
	// builds one package while another has just ended.
	linger    = 10 * time.Second
	lingerEnv = "RETRYLEDGER_ENGINETEST_LINGER" // another duration, for our own tests
	pollLease = 200 * time.Millisecond
)

type state struct {
	Keeper   int    `json:"keeper"` // its pid
	Addr     string `json:"addr"`
	User     string `json:"user"`
	Password string `json:"password"`
	Error    string `json:"error,omitempty"`
}

func (s state) options() *clickhouse.Options {
	return &clickhouse.Options{
		Addr:        []string{s.Addr},
		Auth:        clickhouse.Auth{Username: s.User, Password: s.Password},
		DialTimeout: 5 * time.Second,
		Compression: &clickhouse.Compression{Method: clickhouse.CompressionLZ4},
	}
}

var (
	sharedMu sync.Mutex
	lease    *flock.Flock // held until this process ends
	failed   error        // why this process has no library: not tried again
)

// folder is the shared engine's, this user's own: others could put a state
// there that leads to an engine of theirs.
func folder() (string, error) {
	dir := filepath.Join(os.TempDir(), fmt.Sprintf("retryledger-enginetest-%d-v%s-%s", os.Getuid(), layoutVersion, engine.Version))
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return "", fmt.Errorf("create the folder of the shared engine: %w", err)
	}
	st, err := os.Lstat(dir)
	if err != nil {
		return "", err
	}
	if sys, ok := st.Sys().(*syscall.Stat_t); !ok || !st.IsDir() || int(sys.Uid) != os.Getuid() || st.Mode().Perm() != 0o700 {
		return "", fmt.Errorf("%s is not a folder of this user alone: remove it", dir)
	}
	return dir, nil
}

// shared returns the shared engine and starts it if it does not run.
func shared() (state, error) {
	sharedMu.Lock()
	defer sharedMu.Unlock()
	var s state
	dir, err := folder()
	if err != nil {
		return s, err
	}
	if lease == nil {
		gate := flock.New(filepath.Join(dir, "gate"))
		if err := gate.Lock(); err != nil {
			return s, err
		}
		defer gate.Close()
		l := flock.New(filepath.Join(dir, "lease"))
		if err := l.RLock(); err != nil {
			return s, err
		}
		lease = l
	} else if s, err := readState(dir); err == nil && keeperLives(dir) {
		return s, nil
	} else {
		gate := flock.New(filepath.Join(dir, "gate"))
		if err := gate.Lock(); err != nil {
			return s, err
		}
		defer gate.Close()
	}
	if keeperLives(dir) {
		if s, err = readState(dir); err == nil {
			return s, nil
		}
	}
	return startKeeper(dir)
}

// keeperLives is asked with the gate held, but by processes that have a lease,
// which a keeper that ends would not leave alone.
func keeperLives(dir string) bool {
	l := flock.New(filepath.Join(dir, "keeper"))
	free, err := l.TryRLock()
	if err != nil {
		return false
	}
	l.Close()
	return !free
}

func readState(dir string) (state, error) {
	var s state
	b, err := os.ReadFile(filepath.Join(dir, "state"))
	if err != nil {
		return s, err
	}
	if err := json.Unmarshal(b, &s); err != nil {
		return s, err
	}
	if s.Error != "" {
		return s, errors.New(s.Error)
	}
	return s, nil
}

// startKeeper starts the keeper and waits for its engine; the gate is held.
func startKeeper(dir string) (state, error) {
	// Fetched here, not by the keeper, so that the progress is to be seen.
	if failed != nil {
		return state{}, failed
	}
	lib, err := engine.Library(context.Background(), "", printProgress(), nil)
	if err != nil {
		failed = err
		return state{}, err
	}
	os.Remove(filepath.Join(dir, "state"))
	old, _ := filepath.Glob(filepath.Join(dir, "run-*"))
	for _, d := range old {
		os.RemoveAll(d)
	}
	exe, err := os.Executable()
	if err != nil {
		return state{}, err
	}
	log, err := os.Create(filepath.Join(dir, "keeper.log"))
	if err != nil {
		return state{}, err
	}
	defer log.Close()
	cmd := exec.Command(exe)
	cmd.Args = []string{"retryledger-enginetest"}
	cmd.Env = append(os.Environ(), keeperEnv+"="+dir, engine.LibraryEnv+"="+lib)
	cmd.Dir = dir
	cmd.Stdout, cmd.Stderr = log, log // go test would wait for the end of its own
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return state{}, fmt.Errorf("start the keeper of the shared engine: %w", err)
	}
	// No goroutine waits for it: it outlives the tests and their leak checks.
	defer cmd.Process.Release()
	for {
		var ws syscall.WaitStatus
		pid, _ := syscall.Wait4(cmd.Process.Pid, &ws, syscall.WNOHANG, nil)
		s, err := readState(dir)
		if err == nil || s.Error != "" {
			return s, err
		}
		if pid == cmd.Process.Pid {
			b, _ := os.ReadFile(log.Name())
			return state{}, fmt.Errorf("the keeper of the shared engine ended (exit status %d): %s", ws.ExitStatus(), b)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// printProgress prints a step of the fetch when it begins, to standard error.
func printProgress() func(engine.Progress) {
	var step string
	return func(p engine.Progress) {
		if p.Step != step {
			step = p.Step
			fmt.Fprintln(os.Stderr, p)
		}
	}
}

// keep is the keeper's body.
func keep(dir string) int {
	os.Unsetenv(keeperEnv)
	gate := flock.New(filepath.Join(dir, "gate"))
	defer gate.Close() // last of all: the next keeper finds everything gone
	self := flock.New(filepath.Join(dir, "keeper"))
	if err := self.Lock(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer self.Close()
	data, err := os.MkdirTemp(dir, "run-")
	if err != nil {
		return fail(dir, err)
	}
	defer os.RemoveAll(data)
	e, err := engine.Start(context.Background(), engine.Options{DataDir: data, MemoryLimit: 4 << 30})
	if err != nil {
		return fail(dir, err)
	}
	defer e.Shutdown(context.Background())
	o := e.ClientOptions()
	if err := writeState(dir, state{Keeper: os.Getpid(), Addr: o.Addr[0], User: o.Auth.Username, Password: o.Auth.Password}); err != nil {
		return fail(dir, err)
	}
	// A machine that is cleaned up may say so, and then the data goes as well.
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	waitUnused(ctx, dir, gate)
	return 0
}

// waitUnused returns, with the gate locked, when nobody has held a lease for
// the time of linger, and at once when ctx ends.
func waitUnused(ctx context.Context, dir string, gate *flock.Flock) {
	leases := flock.New(filepath.Join(dir, "lease"))
	linger := linger
	if d, err := time.ParseDuration(os.Getenv(lingerEnv)); err == nil {
		linger = d
	}
	t := time.NewTicker(pollLease)
	defer t.Stop()
	for unused := time.Duration(0); ; {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		free, err := leases.TryLock()
		if err == nil && free {
			leases.Unlock()
			unused += pollLease
		} else {
			unused = 0
		}
		if unused < linger {
			continue
		}
		if ok, err := gate.TryLock(); err != nil || !ok {
			continue // somebody is about to take a lease
		}
		if free, err := leases.TryLock(); err == nil && free {
			leases.Unlock()
			os.Remove(filepath.Join(dir, "state"))
			return
		}
		gate.Unlock()
	}
}

func fail(dir string, err error) int {
	fmt.Fprintln(os.Stderr, err)
	if werr := writeState(dir, state{Error: err.Error()}); werr != nil {
		_, _ = os.Stderr.WriteString(werr.Error())
	}
	return 1
}

func writeState(dir string, s state) error {
	b, err := json.Marshal(s)
	if err != nil {
		return err
	}
	tmp := filepath.Join(dir, "state.new")
	if err := os.WriteFile(tmp, b, 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, filepath.Join(dir, "state"))
}
