//go:build !race

package apps

// raceDetector: the binary is built as these tests are.
const raceDetector = false
