package schema

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// The views read every array of theirs, whatever columns a query wants, for
// ClickHouse does not leave out what an ARRAY JOIN lists. Narrow writes the same
// SELECT with what is wanted only, which is several times as fast.

// view is a view's SELECT, taken apart.
type view struct {
	columns map[string]string // name → expression
	arrays  map[string]string // alias → array of the ledger
	first   string            // alias of the array that says how many rows there are
	where   string
}

var views = sync.OnceValue(func() map[string]view {
	list, err := migrations()
	if err != nil {
		panic(err) // impossible: they are compiled in
	}
	found := make(map[string]view)
	for _, statement := range viewStatements(list) {
		name, body, _ := strings.Cut(statement, " AS\nSELECT\n")
		list, rest, ok := strings.Cut(body, "\nFROM ledger FINAL\nARRAY JOIN\n")
		if !ok {
			continue // a view over others
		}
		joined, where, _ := strings.Cut(rest, "\nWHERE ")
		v := view{columns: make(map[string]string), arrays: make(map[string]string), where: where}
		for line := range strings.SplitSeq(list, ",\n") {
			expression, column := aliased(line)
			v.columns[column] = expression
		}
		for line := range strings.SplitSeq(joined, ",\n") {
			array, alias := aliased(line)
			v.arrays[alias] = array
			if v.first == "" {
				v.first = alias
			}
		}
		found[name] = v
	}
	return found
})

// viewStatements are the statements of all migrations that define views, from the
// view's name on; a later one replaces an earlier one.
func viewStatements(list []migration) []string {
	var found []string
	for _, m := range list {
		for _, statement := range statements(m.text) {
			for _, create := range []string{"CREATE VIEW IF NOT EXISTS ", "CREATE OR REPLACE VIEW "} {
				if rest, ok := strings.CutPrefix(statement, create); ok {
					found = append(found, rest)
				}
			}
		}
	}
	return found
}

// aliased takes `expression AS name` apart; without AS the expression is the name.
func aliased(line string) (expression, name string) {
	line = strings.TrimSpace(line)
	i := strings.LastIndex(line, " AS ")
	if i < 0 {
		return line, strings.Trim(line, "`")
	}
	return line[:i], strings.Trim(line[i+len(" AS "):], "`")
}

var word = regexp.MustCompile("`[^`]+`|[A-Za-z_][A-Za-z0-9_.]*")

// Narrow is a subquery, with its parentheses, that gives the named columns of one
// of the views attempts, operations, steps, runs and violations, and reads no
// other. It may give further ones that they are computed from. An unknown name
// is a mistake of the programmer's and panics.
func Narrow(name string, columns ...string) string {
	v, ok := views()[name]
	if !ok {
		panic(fmt.Sprintf("there is no view %q", name))
	}
	var selected, joined []string
	var need func(column string)
	use := func(expression string) {
		for _, w := range word.FindAllString(expression, -1) {
			w = strings.Trim(w, "`")
			if _, ok := v.arrays[w]; ok && !slices.Contains(joined, w) {
				joined = append(joined, w)
			} else if _, ok := v.columns[w]; ok && !slices.Contains(joined, w) {
				need(w)
			}
		}
	}
	need = func(column string) {
		if slices.Contains(selected, column) {
			return
		}
		expression, ok := v.columns[column]
		if !ok {
			panic(fmt.Sprintf("the view %s has no column %q", name, column))
		}
		selected = append(selected, column)
		use(expression)
	}
	for _, column := range columns {
		need(column)
	}
	use(v.where)
	if len(joined) == 0 {
		joined = []string{v.first}
	}
	lines := make([]string, len(selected))
	for i, column := range selected {
		lines[i] = v.columns[column] + " AS " + quoted(column)
	}
	arrays := make([]string, len(joined))
	for i, alias := range joined {
		arrays[i] = v.arrays[alias] + " AS " + quoted(alias)
	}
	query := "(SELECT " + strings.Join(lines, ", ") + " FROM ledger FINAL ARRAY JOIN " + strings.Join(arrays, ", ")
	if v.where != "" {
		query += " WHERE " + v.where
	}
	return query + ")"
}
