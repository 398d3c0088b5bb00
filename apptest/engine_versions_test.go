//go:build linux

package apptest

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryledger/retryledger/internal/engine"
)

const (
	// older is the release of the engine's package before the one that is fetched. Both are
	// of one version of ClickHouse, and of different builds; those before cannot listen.
	older = "26.7.0-stable.1"
	// newer is a version of ClickHouse that comes for Python alone, and cannot listen.
	newer = "26.9.0"
)

// missing skips a test, or fails it where everything must be there.
func missing(t *testing.T, what string, err error) {
	t.Helper()
	require.Empty(t, os.Getenv("CI"), "%s is missing: %v", what, err)
	t.Skip(what, "is missing:", err)
}

// kept is a folder for what is fetched once, beside the engine's own.
func kept(t *testing.T, name string) string {
	t.Helper()
	cache, err := os.UserCacheDir()
	require.NoError(t, err)
	folder := filepath.Join(cache, "retryledger", name)
	require.NoError(t, os.MkdirAll(folder, 0o700))
	return folder
}

// command runs a program that fetches something.
func command(t *testing.T, in, name string, args ...string) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), readyWithin)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = in
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, out)
	}
	return nil
}

// olderEngine is the library of the older release.
func olderEngine(t *testing.T) string {
	t.Helper()
	platform := map[string]string{"amd64": "linux-x64-gnu", "arm64": "linux-arm64-gnu"}[runtime.GOARCH]
	folder := kept(t, "clickhouse-"+older)
	library := filepath.Join(folder, "libchdb.so")
	if _, err := os.Stat(library); err == nil {
		return library
	}
	work, err := os.MkdirTemp(folder, "fetch") //nolint:usetesting // on the file system of the cache, for the library is renamed into it
	require.NoError(t, err)
	defer func() { require.NoError(t, os.RemoveAll(work)) }()
	if err := command(t, work, "npm", "pack", "@chdb/lib-"+platform+"@"+older, "--pack-destination", work, "--cache", filepath.Join(work, "cache"), "--loglevel", "error"); err != nil {
		missing(t, "an older engine", err)
	}
	packed, err := filepath.Glob(filepath.Join(work, "*.tgz"))
	require.NoError(t, err)
	require.Len(t, packed, 1)
	fetched := filepath.Join(work, "libchdb.so")
	require.NoError(t, unpack(packed[0], "package/libchdb.so", fetched))
	require.NoError(t, os.Rename(fetched, library))
	return library
}

// newerEngine is a Python that has the newer version.
func newerEngine(t *testing.T) string {
	t.Helper()
	folder := kept(t, "chdb-core-"+newer)
	python, whole := filepath.Join(folder, "bin", "python"), filepath.Join(folder, "whole")
	if _, err := os.Stat(whole); err == nil {
		return python
	}
	err := command(t, folder, "python3", "-m", "venv", "--clear", folder)
	if err == nil {
		err = command(t, folder, python, "-m", "pip", "install", "--quiet", "--no-deps", "--no-cache-dir", "chdb-core=="+newer)
	}
	if err != nil {
		missing(t, "a newer engine", err)
	}
	require.NoError(t, os.WriteFile(whole, nil, 0o600))
	return python
}

// unpack writes one file of a package to a path.
func unpack(packed, name, to string) (err error) {
	in, err := os.Open(packed)
	if err != nil {
		return fmt.Errorf("unpack %s: %w", name, err)
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	plain, err := gzip.NewReader(in)
	if err != nil {
		return fmt.Errorf("unpack %s: %w", name, err)
	}
	files := tar.NewReader(plain)
	for {
		header, err := files.Next()
		if err != nil {
			return fmt.Errorf("find %s in %s: %w", name, packed, err)
		}
		if header.Name != name {
			continue
		}
		out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return fmt.Errorf("unpack %s: %w", name, err)
		}
		_, err = io.Copy(out, files)
		if err = errors.Join(err, out.Close()); err != nil {
			return fmt.Errorf("unpack %s: %w", name, err)
		}
		return nil
	}
}

// placeholder finds the parameters of a view.
var placeholder = regexp.MustCompile(`\{(\w+):\s*([^}]+)\}`)

// questions asks everything of every view and table: how many rows, and a sum over their
// contents.
func (c *cluster) questions(t *testing.T) []string {
	t.Helper()
	rows, err := c.store.Query(t.Context(), `SELECT name, create_table_query FROM system.tables WHERE database = 'retryledger'
		AND (engine = 'View' OR name IN ('spans', 'ledger')) ORDER BY name`)
	require.NoError(t, err)
	defer func() { require.NoError(t, rows.Close()) }()
	var out []string
	for rows.Next() {
		var name, definition string
		require.NoError(t, rows.Scan(&name, &definition))
		arguments := map[string]string{}
		for _, found := range placeholder.FindAllStringSubmatch(definition, -1) {
			arguments[found[1]] = argument(found[1], found[2])
		}
		var list []string
		for parameter, value := range arguments {
			list = append(list, parameter+" = "+value)
		}
		slices.Sort(list)
		from := name
		switch {
		case name == "spans" || name == "ledger":
			from += " FINAL"
		case len(list) > 0:
			from += "(" + strings.Join(list, ", ") + ")"
		}
		out = append(out, "SELECT concat('"+name+" ', toString(count()), ' ', toString(sum(sipHash64(toString(tuple(*)))))) FROM "+from)
	}
	require.NoError(t, rows.Err())
	return out
}

// argument is a value of a type that leaves nothing out.
func argument(name, of string) string {
	switch {
	case strings.HasPrefix(of, "Array"):
		return "[]"
	case strings.HasPrefix(of, "Map"):
		return "map()"
	case strings.Contains(of, "String"):
		return "''"
	case strings.HasPrefix(name, "since"):
		return "0"
	}
	return "4000000000000000000"
}

//go:embed testdata/ask.py
var askInPython string

// An engine is killed in the middle of its work, and another build of it takes over its
// store: nothing is lost, nothing counts twice, and the ledger goes on. A newer version of
// ClickHouse finds the same in that store: every view answers it alike.
func TestTheEngineIsReplacedByAnother(t *testing.T) {
	p := newPatient(t, nil, engine.LibraryEnv+"="+olderEngine(t))
	python := newerEngine(t)
	p.sendFor(*away / 2)
	p.catchesUp()

	p.sendFor(*away / 2)
	e := p.r.c.engine
	e.kill()
	p.sendFor(*away / 2)
	e.env = e.env[:len(e.env)-1]
	require.NoError(t, e.start(t.Context()))
	p.catchesUp()

	p.sendFor(*away / 2)
	p.catchesUp()
	for _, n := range p.r.c.collectors {
		require.NoError(t, n.stop(readyWithin))
	}
	http.DefaultClient.CloseIdleConnections()
	questions := p.r.c.questions(t)
	asked, err := json.Marshal(questions)
	require.NoError(t, err)
	var now []string
	for _, question := range questions {
		var answer string
		require.NoError(t, p.r.c.store.QueryRow(t.Context(), question).Scan(&answer), question)
		now = append(now, answer)
	}
	e.kill()
	ctx, cancel := context.WithTimeout(t.Context(), readyWithin)
	defer cancel()
	cmd := exec.CommandContext(ctx, python, "-c", askInPython, filepath.Join(p.r.c.folder, "engine", "store"))
	cmd.Stdin = bytes.NewReader(asked)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	require.NoError(t, cmd.Run(), "%s", errs.String())
	then := strings.Split(strings.TrimSpace(out.String()), "\n")
	empty := 0
	for _, answer := range now {
		if strings.Contains(answer, " 0 ") {
			empty++
		}
	}
	t.Logf("ClickHouse %s, with %d questions, %d of them about nothing", then[0], len(questions), empty)
	assert.Greater(t, len(questions), 4*empty)
	assert.Equal(t, now, then[1:])
}
