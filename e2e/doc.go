// Package e2e holds tests only: they build the binaries that users get, run them as
// users do, and talk to them over the network and the terminal.
package e2e
