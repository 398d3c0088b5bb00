//go:build race

package collectortest

// RaceDetector tells whether tests, and so the programs under test, run with the race
// detector, which multiplies memory: both are built the same way.
const RaceDetector = true
