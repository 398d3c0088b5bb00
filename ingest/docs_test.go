package ingest

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The page of promises names tests that are there.
func TestThePromisesNameTheirTests(t *testing.T) {
	page, err := os.ReadFile("../docs/reliability.md")
	require.NoError(t, err)
	named := 0
	for row := range strings.Lines(string(page)) {
		if !strings.HasPrefix(row, "| ") {
			continue
		}
		folder := ""
		for _, word := range regexp.MustCompile("`([a-z/0-9]+)`|\\b(Test[A-Za-z0-9]+)").FindAllStringSubmatch(row, -1) {
			if word[1] != "" {
				folder = word[1]
				continue
			}
			named++
			files, err := filepath.Glob(filepath.Join("..", folder, "*_test.go"))
			require.NoError(t, err)
			found := false
			for _, file := range files {
				source, err := os.ReadFile(file)
				require.NoError(t, err)
				found = found || strings.Contains(string(source), "\nfunc "+word[2]+"(")
			}
			assert.True(t, found, "%s is not in %s", word[2], folder)
		}
	}
	assert.Greater(t, named, 20)
}
