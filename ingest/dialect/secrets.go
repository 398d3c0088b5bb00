package dialect

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/cespare/xxhash/v2"
)

// Names are kept as applications state them, and now and then one holds a secret: a key in
// a model's address, a header in an error's class. What looks like one is replaced before
// anything is journalled.

// The ways in which secrets show.
var (
	// secretToken are keys and tokens that say what they are: OpenAI and its like, AWS,
	// Google, GitHub, GitLab, Slack, xAI, Groq, Hugging Face, npm, Replicate, Perplexity,
	// and JSON web tokens.
	secretToken = regexp.MustCompile(`\b(?:[srp]k[-_][A-Za-z0-9_-]{12,}|(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{12,}|AIza[\w-]{20,}|ya29\.[\w.-]{16,}|gh[pousr]_\w{16,}|github_pat_\w{16,}|` +
		`glpat-[\w-]{16,}|xox[a-z]-[\w-]{10,}|xai-[\w-]{16,}|gsk_\w{16,}|hf_\w{16,}|npm_\w{16,}|r8_\w{16,}|pplx-\w{16,}|eyJ[\w-]{8,}\.[\w-]{4,}(?:\.[\w-]*)?)`)
	// secretHeader is what follows the scheme of an Authorization header.
	secretHeader = regexp.MustCompile(`(?i)\b(bearer|basic)(\s+)([A-Za-z0-9._~+/-]{8,}=*)`)
	// secretInURL is the user's part of an address.
	secretInURL = regexp.MustCompile(`([A-Za-z][A-Za-z0-9+.-]*://)[^/?#\s@]*@`)
	// secretNamed is a value whose name says that it is one.
	secretNamed = regexp.MustCompile(`(?i)(api[-_]?key|access[-_]?key|secret[-_]?key|token|secret|passw(?:or)?d|passphrase|pwd|authorization|credentials?|signature)(["']?\s*[=:]\s*["']?)([^\s"'&,;}\])]{4,})`)
	// secretBlock is a private key; what follows it goes with it.
	secretBlock = regexp.MustCompile(`(?s)-{5}BEGIN [A-Z ]*PRIVATE KEY.*`)
)

const redacted = "[redacted]"

// withoutSecrets replaces what looks like a secret. Of a token that is long and random a
// part of its hash is left, so that two remain two; of anything that could be guessed,
// nothing. Most texts hold none and are not copied.
func withoutSecrets(text string) string {
	if !mayHoldSecret(text) {
		return text
	}
	return replaceSecrets(text)
}

func replaceSecrets(text string) string {
	text = secretBlock.ReplaceAllString(text, redacted)
	text = secretInURL.ReplaceAllString(text, "${1}"+redacted+"@")
	text = secretToken.ReplaceAllStringFunc(text, func(token string) string {
		if !strings.HasPrefix(token, "eyJ") && !strings.HasPrefix(token, "A") && digits(token) < 2 {
			return token // words
		}
		return fmt.Sprintf("[redacted %08x]", uint32(xxhash.Sum64String(token)))
	})
	text = secretHeader.ReplaceAllStringFunc(text, func(header string) string {
		m := secretHeader.FindStringSubmatch(header)
		if digits(m[3]) == 0 && len(m[3]) < 20 {
			return header // words
		}
		return m[1] + m[2] + redacted
	})
	return secretNamed.ReplaceAllStringFunc(text, func(pair string) string {
		m := secretNamed.FindStringSubmatch(pair)
		if strings.HasPrefix(m[3], "[redacted") || strings.EqualFold(m[3], "bearer") || strings.EqualFold(m[3], "basic") {
			return pair
		}
		return m[1] + m[2] + redacted
	})
}

func digits(text string) (n int) {
	for i := range len(text) {
		if '0' <= text[i] && text[i] <= '9' {
			n++
		}
	}
	return n
}

// secretStarts are how what withoutSecrets replaces begins, by its first byte.
var secretStarts = [256][]string{
	'-': {"-----BEGIN"},
	'A': {"AKIA", "ASIA", "ABIA", "ACCA", "AIza"},
	'e': {"eyJ"},
	'g': {"ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "gsk_"},
	'h': {"hf_"},
	'n': {"npm_"},
	'p': {"pk-", "pk_", "pplx-"},
	'r': {"rk-", "rk_", "r8_"},
	's': {"sk-", "sk_"},
	'x': {"xox", "xai-"},
	'y': {"ya29."},
}

// mayHoldSecret is a fast test that holds for every text in which withoutSecrets replaces
// something.
func mayHoldSecret(text string) bool {
	if len(text) < 8 {
		return false
	}
	for i := range len(text) {
		switch c := text[i]; c {
		case ':', '=':
			if strings.HasPrefix(text[i:], "://") && strings.IndexByte(text[i:], '@') > 0 || endsSecretsName(text[:i]) {
				return true
			}
		case ' ', '\t', '\n', '\r', '\f', '\v':
			if i >= 5 && (strings.EqualFold(text[i-5:i], "basic") || i >= 6 && strings.EqualFold(text[i-6:i], "bearer")) {
				return true
			}
		default:
			for _, start := range secretStarts[c] {
				if strings.HasPrefix(text[i:], start) {
					return true
				}
			}
		}
	}
	return false
}

// secretNames are the ends of the names of secrets, by their last letter.
var secretNames = [256][]string{
	'y': {"key"}, 'n': {"token", "authorization"}, 't': {"secret"}, 'd': {"password", "passwd", "pwd"},
	'e': {"passphrase", "signature"}, 's': {"credentials"}, 'l': {"credential"},
}

// endsSecretsName tells whether text may end in the name of a secret, and what may stand
// between it and its value.
func endsSecretsName(text string) bool {
	text = strings.TrimRight(text, " \t\n\r\f\v")
	text = strings.TrimRight(text, `"'`)
	if text == "" {
		return false
	}
	for _, name := range secretNames[text[len(text)-1]|0x20] {
		if len(text) >= len(name) && strings.EqualFold(text[len(text)-len(name):], name) {
			return true
		}
	}
	return false
}
