package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/retryledger/retryledger/analysis/query"
	"github.com/retryledger/retryledger/internal/datadir"
	"github.com/retryledger/retryledger/internal/engine"
	"github.com/retryledger/retryledger/schema"
)

// storePlace is the store of a collector on this machine.
type storePlace struct {
	dataDir, database string
}

func newStore(env Environment) *cobra.Command {
	var place storePlace
	cmd := &cobra.Command{
		Use:   "store",
		Short: "Back up, restore, and delete from, the store of a collector on this machine",
		Long: `Looks after the embedded engine's tables while the collector (or "collector engine") runs.
These commands read the engine's password from its data folder, so they run on the
collector's machine, as its user. A ClickHouse server has means of its own.`,
	}
	f := cmd.PersistentFlags()
	f.StringVar(&place.dataDir, "data-dir", "", "the collector's data folder, or that of an engine that runs alone (default $"+datadir.Variable+", else where the collector puts it)")
	f.StringVar(&place.database, "database", "retryledger", "the ledger's database")
	cmd.AddCommand(newStoreBackup(env, &place), newStoreRestore(env, &place), newStoreDelete(env, &place))
	return cmd
}

// open connects to the engine, and says in which folder it keeps its backups.
func (p storePlace) open(ctx context.Context, env Environment) (conn driver.Conn, backups string, err error) {
	dir := p.dataDir
	if dir == "" {
		dir = env.Getenv(datadir.Variable)
	}
	if dir == "" {
		if dir, err = datadir.Default(); err != nil {
			return nil, "", fail(ExitUsage, "%w; name it with --data-dir", err)
		}
	}
	if !schema.ValidDatabase(p.database) {
		return nil, "", fail(ExitUsage, "--database %s: use letters, digits and underscores", p.database)
	}
	opts, folder, err := engine.Attach(dir)
	switch {
	case errors.Is(err, engine.ErrNoEngine):
		return nil, "", fail(ExitInput, "%w: name the collector's data folder with --data-dir", err)
	case errors.Is(err, fs.ErrPermission):
		return nil, "", fail(ExitInput, "%w: run this as the collector's user", err)
	case err != nil:
		return nil, "", fail(ExitInput, "%w", err)
	}
	opts.Auth.Database = p.database
	if conn, err = clickhouse.Open(opts); err == nil {
		err = conn.Ping(ctx)
	}
	var refused *net.OpError
	if errors.As(err, &refused) {
		return nil, "", fail(ExitUnreachable, "the engine of %s does not run: start the collector", dir)
	}
	if err != nil {
		return nil, "", fail(ExitUnreachable, "the engine of %s: %w", dir, err)
	}
	return conn, filepath.Join(folder, engine.BackupFolder), nil
}

func oneName(what string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) != 1 || !schema.ValidBackup(args[0]) {
			return fail(ExitUsage, "%s takes one name, of letters, digits, dots, hyphens and underscores", what)
		}
		return nil
	}
}

func newStoreBackup(env Environment, place *storePlace) *cobra.Command {
	var base string
	cmd := &cobra.Command{
		Use:   "backup NAME",
		Short: "Write the whole store into a folder, while it runs",
		Long: `Writes the store into the folder NAME of the engine's backups, and says where that is. The
collector goes on meanwhile. Copy the folder elsewhere with any tool; what waits in the
journal is not in it.

` + exitCodes,
		Example: `  retryledger store backup monday
  retryledger store backup tuesday --base monday    # what monday does not have; both are needed to restore it`,
		Args: oneName("backup"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if base != "" && !schema.ValidBackup(base) {
				return fail(ExitUsage, "--base %s: name an earlier backup", base)
			}
			conn, folder, err := place.open(cmd.Context(), env)
			if err != nil {
				return err
			}
			defer func() { _ = conn.Close() }()
			started := env.Now()
			err = schema.Backup(cmd.Context(), conn, place.database, args[0], base)
			switch {
			case errors.Is(err, schema.ErrBackupExists):
				return fail(ExitUsage, "there is a backup %s in %s already: choose another name, or move that folder away", args[0], folder)
			case errors.Is(err, schema.ErrNoBase):
				return fail(ExitUsage, "--base %s: there is no backup of this name in %s", base, folder)
			case err != nil:
				return fail(ExitNoAnswer, "%w", err)
			}
			to := filepath.Join(folder, args[0])
			_, _ = fmt.Fprintf(env.Stdout, "%s: %s in %s\n", to, humanize.IBytes(folderSize(to)), env.Now().Sub(started).Round(10*time.Millisecond))
			return nil
		},
	}
	cmd.Flags().StringVar(&base, "base", "", "an earlier backup: write only what it does not have")
	return cmd
}

func folderSize(folder string) (bytes uint64) {
	_ = filepath.WalkDir(folder, func(_ string, entry os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if info, err := entry.Info(); err == nil && info.Mode().IsRegular() {
			bytes += uint64(info.Size())
		}
		return nil
	})
	return bytes
}

func newStoreRestore(env Environment, place *storePlace) *cobra.Command {
	return &cobra.Command{
		Use:   "restore NAME",
		Short: "Read a backup into the empty store of a running collector",
		Long: `Reads the backup NAME, a folder below the engine's backups, into a store that holds no spans:
start a collector with a new data folder, copy the backup (and the ones it is based on)
into engine/backups there, then restore. A backup of an earlier release is brought up to
date; one of a newer release is refused.

` + exitCodes,
		Args: oneName("restore"),
		RunE: func(cmd *cobra.Command, args []string) error {
			conn, folder, err := place.open(cmd.Context(), env)
			if err != nil {
				return err
			}
			defer func() { _ = conn.Close() }()
			if _, err := os.Stat(filepath.Join(folder, args[0])); err != nil {
				return fail(ExitInput, "there is no backup %s: copy it to %s", args[0], filepath.Join(folder, args[0]))
			}
			err = schema.Restore(cmd.Context(), conn, place.database, args[0])
			switch {
			case errors.Is(err, schema.ErrNotEmpty):
				return fail(ExitNoAnswer, "%w: restore into the store of a collector that was started with a new data folder", err)
			case err != nil:
				return fail(ExitNoAnswer, "%w", err)
			}
			_, _ = fmt.Fprintf(env.Stdout, "%s is restored\n", args[0])
			return nil
		},
	}
}

func newStoreDelete(env Environment, place *storePlace) *cobra.Command {
	var doomed schema.Doomed
	var sure bool
	cmd := &cobra.Command{
		Use:   "delete",
		Short: "Delete a service's, a thread's or one run for good",
		Long: `Deletes all traces of the runs from every table, while the collector runs. Stop who sends
them first: what comes later, or waits in a journal, is new. The engine keeps the old
files for eight minutes more; backups keep what they hold. What names no run is an error.

` + exitCodes,
		Example: `  retryledger store delete --service checkout --yes
  retryledger store delete --thread user-4711 --yes    # a person's, where threads are persons'
  retryledger store delete --run 5b28 --yes            # the run whose id begins so, and no other's does`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			named := 0
			for _, text := range []string{doomed.Service, doomed.Thread, doomed.Run} {
				if text != "" {
					named++
				}
			}
			if named != 1 {
				return fail(ExitUsage, "delete wants one of --service, --thread and --run")
			}
			if !sure {
				return fail(ExitUsage, "this cannot be undone; say --yes")
			}
			conn, _, err := place.open(cmd.Context(), env)
			if err != nil {
				return err
			}
			defer func() { _ = conn.Close() }()
			if doomed.Run != "" {
				if doomed.Run, err = wholeRunID(cmd.Context(), conn, doomed.Run); err != nil {
					return err
				}
			}
			deleted, err := schema.Delete(cmd.Context(), conn, doomed)
			if err != nil {
				return fail(ExitNoAnswer, "%w", err)
			}
			if deleted == (schema.Deleted{}) {
				return fail(ExitNoAnswer, "nothing is deleted: %s; retryledger runs lists what there is", doomedUnknown(doomed))
			}
			_, _ = fmt.Fprintf(env.Stdout, "deleted %s of %s\n", plural(int(deleted.Spans), "span"), plural(int(deleted.Traces), "trace"))
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&doomed.Service, "service", "", "the runs of this service.name, whole traces")
	f.StringVar(&doomed.Thread, "thread", "", "the runs of this thread, conversation or session")
	f.StringVar(&doomed.Run, "run", "", "the runs of this id, or the one whose run or trace id begins so")
	f.BoolVar(&sure, "yes", false, "yes, for good")
	return cmd
}

// wholeRunID is the id of the run that id names, as "run" finds it. One that names none is
// left as it is: accounts may be missing of what is to be deleted.
func wholeRunID(ctx context.Context, conn driver.Conn, id string) (string, error) {
	named, err := query.New(conn, query.Limits{}).Named(ctx, id)
	var several *query.AmbiguousError
	switch {
	case errors.As(err, &several) && several.Candidates[0].RunID == id: // all have it
		return id, nil
	case errors.As(err, &several):
		return "", fail(ExitNoAnswer, "nothing is deleted: %w%s", err, candidates(several.Candidates))
	case errors.Is(err, query.ErrNotFound):
		return id, nil
	case err != nil:
		return "", fail(ExitNoAnswer, "%w", err)
	}
	return named.RunID, nil
}

func doomedUnknown(d schema.Doomed) string {
	switch {
	case d.Run != "":
		return fmt.Sprintf("no run of the store has the id %q, nor one that begins so", d.Run)
	case d.Thread != "":
		return fmt.Sprintf("no run of the store is of the thread %q", d.Thread)
	}
	return fmt.Sprintf("no run of the store is of the service %q", d.Service)
}
