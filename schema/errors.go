package schema

import (
	"errors"
	"fmt"

	chcolumn "github.com/ClickHouse/clickhouse-go/v2/lib/column"
	"github.com/ClickHouse/clickhouse-go/v2/lib/proto"
)

// PermanentError is a refusal of the data itself: the same rows will be
// refused again, whatever the state of the store.
type PermanentError struct{ Err error }

// Error is the cause's sentence.
func (e *PermanentError) Error() string { return e.Err.Error() }

// Unwrap is the cause.
func (e *PermanentError) Unwrap() error { return e.Err }

// IsRetryable tells whether the same call may succeed later. Only a refusal of
// the data itself is permanent: a store that is down, full, too busy, without
// its tables or with another password can be mended while the data waits.
func IsRetryable(err error) bool {
	var permanent *PermanentError
	return err != nil && !errors.As(err, &permanent)
}

// NewerSchemaError says that the database was migrated by a newer release.
type NewerSchemaError struct {
	Database string
	Found    int // version of the database
	Known    int // newest version that this release knows
}

// Error says what to do.
func (e *NewerSchemaError) Error() string {
	return fmt.Sprintf("database %q has schema version %d, but this release knows only up to %d: "+
		"start a release that is at least as new as the one that migrated it, or give this one another database",
		e.Database, e.Found, e.Known)
}

// Codes by which ClickHouse refuses the content of an insert
// (src/Common/ErrorCodes.cpp).
var contentCodes = map[int32]bool{
	6:   true, // CANNOT_PARSE_TEXT
	50:  true, // UNKNOWN_TYPE
	53:  true, // TYPE_MISMATCH
	69:  true, // ARGUMENT_OUT_OF_BOUND
	70:  true, // CANNOT_CONVERT_TYPE
	117: true, // INCORRECT_DATA
	128: true, // TOO_LARGE_ARRAY_SIZE
	131: true, // TOO_LARGE_STRING_SIZE
	190: true, // SIZES_OF_ARRAYS_DONT_MATCH
	321: true, // VALUE_IS_OUT_OF_RANGE_OF_DATA_TYPE
	349: true, // CANNOT_INSERT_NULL_IN_ORDINARY_COLUMN
}

// classified marks err as permanent where the data itself was refused.
func classified(err error) error {
	if err == nil {
		return nil
	}
	var exception *proto.Exception
	if errors.As(err, &exception) {
		if contentCodes[exception.Code] {
			return &PermanentError{err}
		}
		return err
	}
	var conversion *chcolumn.ColumnConverterError
	var columnError *chcolumn.Error
	if errors.As(err, &conversion) || errors.As(err, &columnError) {
		return &PermanentError{err}
	}
	return err
}
