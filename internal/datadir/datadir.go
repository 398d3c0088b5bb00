// Package datadir says where the user's programs keep their data: the collector makes
// its folder there, and the command line looks for it there.
package datadir

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
)

const appName = "retryledger"

// Variable is the environment variable that names the data folder. The default
// configuration of the collector reads it too.
const Variable = "RETRYLEDGER_DATA_DIR"

// Default is retryledger in the folder where the user's programs keep data.
func Default() (string, error) {
	return on(runtime.GOOS, os.Getenv, os.UserHomeDir)
}

func on(goos string, getenv func(string) string, home func() (string, error)) (string, error) {
	switch goos {
	case "windows":
		if dir := getenv("LOCALAPPDATA"); dir != "" {
			return filepath.Join(dir, appName), nil
		}
	case "darwin", "ios":
	default:
		// By the XDG specification a relative path is to be ignored.
		if dir := getenv("XDG_DATA_HOME"); filepath.IsAbs(dir) {
			return filepath.Join(dir, appName), nil
		}
	}
	dir, err := home()
	if err != nil {
		return "", fmt.Errorf("find a folder for the data: %w", err)
	}
	switch goos {
	case "windows":
		return filepath.Join(dir, "AppData", "Local", appName), nil
	case "darwin", "ios":
		return filepath.Join(dir, "Library", "Application Support", appName), nil
	default:
		return filepath.Join(dir, ".local", "share", appName), nil
	}
}
