package rules

import (
	"fmt"
	"regexp"
)

// Matcher is a filter on one dimension's value. The value of a dimension that the
// spans do not state is "".
type Matcher struct {
	not    bool
	equals string
	regex  *regexp.Regexp // nil where the value is compared
}

// Equals accepts exactly value.
func Equals(value string) Matcher { return Matcher{equals: value} }

// Regex accepts what the RE2 expression matches from its first character to its last.
func Regex(expression string) (Matcher, error) {
	regex, err := regexp.Compile("^(?:" + expression + ")$")
	if err != nil {
		return Matcher{}, fmt.Errorf("compile the regular expression: %w", err)
	}
	return Matcher{equals: expression, regex: regex}, nil
}

// Not accepts what m refuses.
func (m Matcher) Not() Matcher {
	m.not = !m.not
	return m
}

// Matches tells whether the filter accepts a value.
func (m Matcher) Matches(value string) bool {
	if m.regex != nil {
		return m.regex.MatchString(value) != m.not
	}
	return (m.equals == value) != m.not
}

// String writes the filter as Prometheus does: ="a", !="a", =~"a.*", !~"a.*".
func (m Matcher) String() string {
	operator := map[[2]bool]string{{false, false}: "=", {true, false}: "!=", {false, true}: "=~", {true, true}: "!~"}[[2]bool{m.not, m.regex != nil}]
	return fmt.Sprintf("%s%q", operator, m.equals)
}
