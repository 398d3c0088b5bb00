// Package mistaketest tests loaders of YAML files with files that have one mistake each.
package mistaketest

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/retryledger/retryledger/alerts/internal/strictyaml"
)

// Run loads each file of testdata/mistakes. Its first line, "# want: LINE: SENTENCE", is
// what has to be said about it, and where; nothing else may be said, but of other files.
func Run(t *testing.T, load func(t *testing.T, name string, content []byte) error) {
	t.Helper()
	files, err := filepath.Glob("testdata/mistakes/*.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, name := range files {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".yaml"), func(t *testing.T) {
			t.Parallel()
			content, err := os.ReadFile(name)
			require.NoError(t, err)
			first, _, _ := strings.Cut(string(content), "\n")
			line, sentence, ok := strings.Cut(strings.TrimPrefix(first, "# want: "), ": ")
			require.True(t, ok, first)
			err = load(t, name, content)
			require.ErrorContains(t, err, name+":"+line+": "+strings.TrimSpace(sentence))
			if mistake := new(strictyaml.MistakeError); errors.As(err, &mistake) && mistake.File == name {
				require.NotContains(t, err.Error(), "\n", "one mistake, one message")
				require.Equal(t, line, strconv.Itoa(mistake.Line))
			}
		})
	}
}
