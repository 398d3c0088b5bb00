package ledgerstore

import (
	"context"
	"errors"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/proto"
	"go.uber.org/zap"
)

// Codes of a server that does not have what it once had.
const (
	codeUnknownTable    = 60
	codeUnknownDatabase = 81
)

// keepTables makes the tables anew where the store no longer has them, until ctx ends: a
// server that was replaced by one with an empty disk takes spans again, and nobody has to
// start the collectors again for it.
func (s *ledgerStore) keepTables(ctx context.Context, opts *clickhouse.Options) {
	ticker := time.NewTicker(s.lookAfter)
	defer ticker.Stop()
	said := ""
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		conn, err := s.Conn(ctx)
		if err != nil {
			return // ctx has ended
		}
		var n uint64
		err = conn.QueryRow(ctx, "SELECT count() FROM schema_migrations").Scan(&n)
		var exception *proto.Exception
		if !errors.As(err, &exception) || exception.Code != codeUnknownTable && exception.Code != codeUnknownDatabase {
			continue // they are there, or the store is away
		}
		if err = s.createDatabase(ctx, opts); err == nil {
			err = s.migrate(ctx, conn)
		}
		switch {
		case err == nil:
			s.log.Warn("The store had lost its tables, as a server has that was put in the place of another. They are made anew; what the journal holds goes in now.",
				zap.String("store", s.Location()))
			said = ""
		case ctx.Err() == nil && err.Error() != said: // once for each reason
			s.log.Error("The store has lost its tables, and they cannot be made anew", zap.String("store", s.Location()), zap.Error(s.explained(err)))
			said = err.Error()
		}
	}
}
