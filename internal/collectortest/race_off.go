//go:build !race

package collectortest

// raceDetector: the programs are built as the tests are.
const raceDetector = false
