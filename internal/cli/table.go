package cli

import (
	"io"
	"slices"
	"strings"
	"unicode"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
)

// column is one column of a table that fits itself to the terminal.
type column struct {
	title string // may hold line breaks
	name  string // in the footnote that says what was left out
	left  bool   // text is aligned left, numbers right
	// drop orders what is left out where the room is too small, the lowest first;
	// 0 is never left out.
	drop  int
	cells []string
}

// idle is above every column's drop: what says nothing is left out first.
const idle = 1000

// printer writes to a terminal of a width, 0 for as much as it takes.
type printer struct {
	out    *strings.Builder
	width  int
	colour bool
}

func newPrinter(env Environment) printer {
	return printer{out: &strings.Builder{}, width: env.width(), colour: env.colour()}
}

// flush writes what was printed to standard output.
func (p printer) flush(env Environment) error {
	if _, err := io.WriteString(env.Stdout, p.out.String()); err != nil {
		return fail(ExitNoAnswer, "write the answer: %w", err)
	}
	return nil
}

// paint colours s where colours are wanted.
func (p printer) paint(s string, colours ...text.Color) string {
	if !p.colour || s == "" {
		return s
	}
	return text.Escape(s, text.Colors(colours).EscapeSeq())
}

// says tells whether some cell holds more than nothing.
func (c column) says() bool {
	return slices.ContainsFunc(c.cells, func(cell string) bool { return !slices.Contains([]string{"", "0", "0 %", unseen}, cell) })
}

// table prints the columns that fit and returns the names of those left out: first
// those that say nothing, then by their order. The first column is shortened when even
// the columns that must stay are too wide. Columns without any text never show.
func (p printer) table(columns []column) (leftOut []string) {
	var shown []column
	for _, c := range columns {
		if c.drop == 0 || slices.ContainsFunc(c.cells, func(cell string) bool { return cell != "" }) {
			if c.drop > 0 && !c.says() {
				c.drop -= idle
			}
			shown = append(shown, c)
		}
	}
	for {
		rendered := p.render(shown, 0)
		excess := p.excess(rendered)
		if excess <= 0 {
			p.out.WriteString(rendered)
			return leftOut
		}
		lowest := -1
		for i, c := range shown {
			if c.drop != 0 && (lowest < 0 || c.drop < shown[lowest].drop) {
				lowest = i
			}
		}
		if lowest < 0 {
			first := 0
			for _, cell := range shown[0].cells {
				first = max(first, text.StringWidthWithoutEscSequences(cell))
			}
			p.out.WriteString(p.clip(p.render(shown, max(8, first-excess))))
			return leftOut
		}
		leftOut = append(leftOut, shown[lowest].name)
		shown = append(append([]column{}, shown[:lowest]...), shown[lowest+1:]...)
	}
}

// excess is by how many cells the widest line is too wide.
func (p printer) excess(rendered string) int {
	if p.width == 0 {
		return 0
	}
	widest := 0
	for line := range strings.Lines(rendered) {
		widest = max(widest, text.StringWidthWithoutEscSequences(strings.TrimRight(line, "\n")))
	}
	return widest - p.width
}

func (p printer) render(columns []column, firstWidth int) string {
	w := table.NewWriter()
	style := table.StyleDefault
	style.Options = table.Options{SeparateColumns: true}
	style.Box.MiddleVertical = " "
	style.Box.PaddingLeft, style.Box.PaddingRight = "", " "
	style.Format = table.FormatOptions{} // titles as they are written
	w.SetStyle(style)
	configs := make([]table.ColumnConfig, len(columns))
	header := make(table.Row, len(columns))
	rows := 0
	for i, c := range columns {
		align := text.AlignRight
		if c.left {
			align = text.AlignLeft
		}
		configs[i] = table.ColumnConfig{Number: i + 1, Align: align, AlignHeader: align, VAlignHeader: text.VAlignBottom}
		if i == 0 && firstWidth > 0 {
			configs[i].WidthMax, configs[i].WidthMaxEnforcer = firstWidth, shorten
		}
		lines := strings.Split(c.title, "\n")
		for j := range lines {
			lines[j] = p.paint(lines[j], text.Faint)
		}
		header[i] = strings.Join(lines, "\n")
		rows = max(rows, len(c.cells))
	}
	w.SetColumnConfigs(configs)
	w.AppendHeader(header)
	for r := range rows {
		row := make(table.Row, len(columns))
		for i, c := range columns {
			row[i] = c.cells[r]
		}
		w.AppendRow(row)
	}
	var trimmed strings.Builder
	for line := range strings.Lines(w.Render() + "\n") {
		trimmed.WriteString(strings.TrimRight(line, " \n"))
		trimmed.WriteByte('\n')
	}
	return trimmed.String()
}

// clip cuts lines that are still too wide; go-pretty keeps colours whole.
func (p printer) clip(rendered string) string {
	if p.width == 0 {
		return rendered
	}
	var clipped strings.Builder
	for line := range strings.Lines(rendered) {
		clipped.WriteString(shorten(strings.TrimRight(line, "\n"), p.width))
		clipped.WriteByte('\n')
	}
	return clipped.String()
}

// line prints one line of text, wrapped between words; what is wrapped hangs by two
// cells. A word that is wider than the terminal is left whole.
func (p printer) line(s string) {
	used := 0
	for i, word := range strings.Split(s, " ") {
		width := text.StringWidthWithoutEscSequences(word)
		switch {
		case i == 0:
		case p.width > 0 && used+1+width > p.width:
			p.out.WriteString("\n  ")
			used = 2
		default:
			p.out.WriteByte(' ')
			used++
		}
		p.out.WriteString(word)
		used += width
	}
	p.out.WriteByte('\n')
}

// command shows what to type for what follows.
func (p printer) command(s string) string { return p.paint("$ "+s, text.FgCyan) }

func (p printer) blank() { p.out.WriteByte('\n') }

// shorten cuts s to width cells and marks the cut.
func shorten(s string, width int) string {
	if text.StringWidthWithoutEscSequences(s) <= width {
		return s
	}
	return text.Trim(s, max(0, width-1)) + "…"
}

// clean makes text that came with spans safe to print: a terminal obeys control
// characters, and some characters turn the writing direction.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '\uFFFD'
		}
		return r
	}, s)
}
