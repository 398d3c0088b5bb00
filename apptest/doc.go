// Package apptest breaks the running product on purpose. It runs the programs that users
// get, two collectors that share one engine, and sends them runs whose numbers it knows,
// while a plan of faults drawn from one seed repeats, delays, re-cuts and cuts off
// messages and kills, stops and starves the processes. At the end the ledger must equal
// the truth: no acknowledged span lost, none counted twice (docs/reliability.md).
//
// The short plan is a test like any other. A long one:
//
//	go test ./apptest -run TestFaults -v -faults 300 -timeout 3h
//
// A failure prints its seed and the smallest plan that still fails; -seed and -only
// run that again.
package apptest
