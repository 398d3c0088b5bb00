// Package apps holds tests only: real applications of examples/ send their spans to the
// shipped collector, and what its API answers must equal what the applications counted.
package apps
