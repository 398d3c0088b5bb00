// Package cli is the retryledger command line: its commands, and how answers look
// on a terminal.
package cli

import (
	"crypto/rand"
	"io"
	"os"
	"strconv"
	"time"

	"golang.org/x/term"

	"github.com/retryledger/retryledger/internal/release"
)

// Environment is all that a command takes from the process around it.
type Environment struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	Getenv         func(string) string
	Now            func() time.Time
	Random         io.Reader
	// Width is the terminal's, in cells; 0 where standard output is no terminal:
	// then nothing is cut and nothing is coloured.
	Width int
	// Version is what --version says.
	Version string
}

// Process is the environment of the running process.
func Process() Environment {
	env := Environment{
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		Getenv: os.Getenv, Now: time.Now, Random: rand.Reader, Version: release.Version(),
	}
	if fd := int(os.Stdout.Fd()); term.IsTerminal(fd) {
		env.Width = 80
		if width, _, err := term.GetSize(fd); err == nil && width > 0 {
			env.Width = width
		}
	}
	return env
}

// width is the room for a table, 0 for as much as it wants.
func (e Environment) width() int {
	if columns, err := strconv.Atoi(e.Getenv("COLUMNS")); err == nil && columns > 0 {
		return columns
	}
	return e.Width
}

// colour tells whether to colour: on a terminal only, and not where NO_COLOR
// (no-color.org) or a dumb terminal says no.
func (e Environment) colour() bool {
	return e.Width > 0 && e.Getenv("NO_COLOR") == "" && e.Getenv("TERM") != "dumb"
}
