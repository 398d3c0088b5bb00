package signals

import "strconv"

// Percent writes a ratio of 1 in percent with three significant digits, or with as many
// as it takes to read as another number than beside does, if it is one: what is strictly
// above a threshold must not look equal to it.
func Percent(ratio, beside float64) string {
	const least, most = 3, 15
	for n := least; ; n++ {
		text := digits(ratio*100, n)
		if ratio == beside || n == most || text != digits(beside*100, n) {
			return text + " %"
		}
	}
}

// digits writes x with n significant digits, without zeros at the end and without an exponent.
func digits(x float64, n int) string {
	rounded, _ := strconv.ParseFloat(strconv.FormatFloat(x, 'g', n, 64), 64) // a number is one
	return strconv.FormatFloat(rounded, 'f', -1, 64)
}
