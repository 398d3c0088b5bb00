//go:build race

package e2e

// raceDetector: the binaries are built as these tests are.
const raceDetector = true
