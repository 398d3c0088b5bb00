package schema

import "errors"

// errLimit is what scan returns when there are more rows than the caller wants.
var errLimit = errors.New("more rows than the limit")
