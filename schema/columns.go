package schema

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
)

// column is one column of a table and the field of a row R that it keeps.
type column[R any] struct {
	name string
	read string                                       // what a SELECT asks for
	put  func(col driver.BatchColumn, rows []R) error // appends all rows at once
	dest func(row *R) any                             // where Scan puts the value
}

// field keeps a value as it is. at points into the row.
func field[R, V any](name string, at func(*R) *V) column[R] {
	return column[R]{
		name: name, read: quoted(name),
		put: func(col driver.BatchColumn, rows []R) error {
			values := make([]V, len(rows))
			for i := range rows {
				values[i] = *at(&rows[i])
			}
			return col.Append(values)
		},
		dest: func(row *R) any { return at(row) },
	}
}

// unknown keeps NULL where the row says `none`; expression is how SQL writes it.
func unknown[R any, V comparable](name, expression string, isNone func(V) bool, at func(*R) *V) column[R] {
	return column[R]{
		name: name, read: "ifNull(" + quoted(name) + ", " + expression + ")",
		put: func(col driver.BatchColumn, rows []R) error {
			values := make([]*V, len(rows))
			for i := range rows {
				if v := at(&rows[i]); !isNone(*v) {
					values[i] = v
				}
			}
			return col.Append(values)
		},
		dest: func(row *R) any { return at(row) },
	}
}

// flag keeps FlagUnset as NULL.
func flag[R any](name string, at func(*R) *Flag) column[R] {
	yes, no := true, false
	q := quoted(name)
	return column[R]{
		name: name, read: "toInt8(multiIf(isNull(" + q + "), 0, " + q + ", 1, -1))",
		put: func(col driver.BatchColumn, rows []R) error {
			values := make([]*bool, len(rows))
			for i := range rows {
				switch *at(&rows[i]) {
				case FlagYes:
					values[i] = &yes
				case FlagNo:
					values[i] = &no
				}
			}
			return col.Append(values)
		},
		dest: func(row *R) any { return (*int8)(at(row)) },
	}
}

// id keeps an identifier of a fixed number of bytes.
func id[R any](name string, bytes func(*R) []byte, at func(*R) any) column[R] {
	return column[R]{
		name: name, read: quoted(name),
		put: func(col driver.BatchColumn, rows []R) error {
			values := make([][]byte, len(rows))
			for i := range rows {
				values[i] = bytes(&rows[i])
			}
			return col.Append(values)
		},
		dest: at,
	}
}

// list keeps a slice as an array.
func list[R, V any](name string, at func(*R) *[]V) column[R] {
	return nested(name, at, func(v *V) *V { return v })
}

// nested keeps one field of each element of a slice of the row, as an array.
func nested[R, E, V any](name string, elements func(*R) *[]E, at func(*E) *V) column[R] {
	return nestedAs(name, elements, func(e *E) V { return *at(e) }, func(e *E, v V) error { *at(e) = v; return nil })
}

// nestedAs is nested with a type V of the store's own.
func nestedAs[R, E, V any](name string, elements func(*R) *[]E, get func(*E) V, set func(*E, V) error) column[R] {
	return column[R]{
		name: name, read: quoted(name),
		put: func(col driver.BatchColumn, rows []R) error {
			var values []V
			for i := range rows {
				values = values[:0]
				es := *elements(&rows[i])
				for j := range es {
					values = append(values, get(&es[j]))
				}
				if err := col.AppendRow(values); err != nil {
					return err
				}
			}
			return nil
		},
		dest: func(row *R) any { return &intoElements[E, V]{elements(row), set} },
	}
}

// constant writes one value in every row of an insert; nobody reads it into a row.
func constant[R, V any](name string, value V) column[R] {
	return column[R]{name: name, put: func(col driver.BatchColumn, rows []R) error {
		return col.Append(slices.Repeat([]V{value}, len(rows)))
	}}
}

// intoElements spreads one array over a field of the elements.
type intoElements[E, V any] struct {
	elements *[]E
	set      func(*E, V) error
}

// Scan takes the array that the driver decoded.
func (d *intoElements[E, V]) Scan(src any) error {
	values, ok := src.([]V)
	if !ok {
		return fmt.Errorf("the store has %T where %T is expected", src, values)
	}
	if len(*d.elements) != len(values) {
		*d.elements = make([]E, len(values))
	}
	for i, v := range values {
		if err := d.set(&(*d.elements)[i], v); err != nil {
			return err
		}
	}
	return nil
}

func quoted(name string) string { return "`" + name + "`" }

func readList[R any](columns []column[R]) string {
	expressions := make([]string, len(columns))
	for i, c := range columns {
		expressions[i] = c.read
	}
	return strings.Join(expressions, ", ")
}

// insert sends rows as one block: they become visible together, in each
// partition.
func insert[R any](ctx context.Context, conn driver.Conn, table string, columns []column[R], rows []R) (err error) {
	if len(rows) == 0 {
		return nil
	}
	defer func() {
		if err != nil {
			err = classified(fmt.Errorf("insert %d rows into %s: %w", len(rows), table, err))
		}
	}()
	names := make([]string, len(columns))
	for i, c := range columns {
		names[i] = quoted(c.name)
	}
	// An asynchronous insert would be confirmed before it is kept.
	ctx = clickhouse.Context(ctx, clickhouse.WithSettings(clickhouse.Settings{"async_insert": 0}))
	batch, err := conn.PrepareBatch(ctx, "INSERT INTO "+table+" ("+strings.Join(names, ", ")+")")
	if err != nil {
		return err
	}
	defer func() { _ = batch.Close() }()
	for i, c := range columns {
		if err := c.put(batch.Column(i), rows); err != nil {
			return fmt.Errorf("column %s: %w", c.name, err)
		}
	}
	return batch.Send()
}
