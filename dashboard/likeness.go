package dashboard

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"unicode/utf8"
)

const (
	likenessBytes = 16  // size of the identifier of similar errors
	alikeBytes    = 500 // bytes of an error that are compared
)

// likeness identifies errors that are similar: see commonText. It fits into an address.
func likeness(text string) string {
	sum := sha256.Sum256([]byte(commonText(text)))
	return hex.EncodeToString(sum[:likenessBytes/2])
}

// commonText returns what errors with the same cause have in common. It replaces numbers,
// identifiers, times and quoted texts by placeholders, and collapses white space. It considers
// only the beginning of a text. The result depends on the text alone.
func commonText(text string) string {
	text = beginning(text, alikeBytes)
	var out strings.Builder
	out.Grow(len(text))
	for i := 0; i < len(text); {
		c := text[i]
		switch {
		case c == ' ' || c >= '\t' && c <= '\r':
			i++
			if n := out.Len(); n > 0 && out.String()[n-1] != ' ' {
				out.WriteByte(' ')
			}
		case isQuote(c) && (i == 0 || !isPart(text[i-1])) && closing(text, i) > 0:
			out.WriteString(`"…"`)
			i = closing(text, i) + 1
		case isWord(c):
			end := wordEnd(text, i)
			out.WriteString(commonWord(text[i:end]))
			i = end
		default:
			out.WriteByte(c)
			i++
		}
	}
	return strings.TrimRight(out.String(), " ")
}

// beginning returns the first bytes of a text, without splitting a character.
func beginning(text string, n int) string {
	text = strings.ToValidUTF8(text, "?")
	if len(text) <= n {
		return text
	}
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n]
}

func isQuote(c byte) bool { return c == '"' || c == '\'' || c == '`' }

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

func isLetter(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' }

// isWord reports whether a byte is part of a word, which is also one of another script.
func isWord(c byte) bool { return isDigit(c) || isLetter(c) || c == '_' || c >= utf8.RuneSelf }

// isPart reports whether a byte is part of a word, or stands for one, or is a quote: none of what
// stands beside these begins or ends what is quoted.
func isPart(c byte) bool { return isWord(c) || c == '#' || isQuote(c) }

// closing is where the quote that begins at i ends; 0: nowhere.
func closing(text string, i int) int {
	for j := i + 1; j < len(text); j++ {
		if text[j] == text[i] && (j+1 == len(text) || !isPart(text[j+1])) {
			return j
		}
	}
	return 0
}

// wordEnd is where the word that begins at i ends. Words that hold digits go on over what joins
// numbers, as in 10.0.0.1:5432, 1.5s, 2026-11-24T03:30:00Z and 6b0c9d1e-4a54-11ef-9262.
func wordEnd(text string, i int) int {
	digits := false
	for j := i; ; j++ {
		if j < len(text) && isWord(text[j]) {
			digits = digits || isDigit(text[j])
			continue
		}
		joins := j+1 < len(text) && strings.IndexByte(".,:-+/", text[j]) >= 0
		if !joins || !digits || !numeric(text[j+1:]) {
			return j
		}
	}
}

// numeric reports whether a text begins with a word that holds a digit, or with a part of a UUID
// that happens to hold none.
func numeric(text string) bool {
	n, base16 := 0, true
	for ; n < len(text) && isWord(text[n]); n++ {
		if isDigit(text[n]) {
			return true
		}
		base16 = base16 && isBase16(text[n])
	}
	return base16 && (n == 4 || n == 12)
}

func isBase16(c byte) bool { return isDigit(c) || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F' }

// commonWord replaces what differs in a word: of one with a number at its end the letters before
// it are kept, and others that hold digits are identifiers.
func commonWord(word string) string {
	first, base16 := 0, true
	for first < len(word) && !isDigit(word[first]) {
		base16 = base16 && isBase16(word[first])
		first++
	}
	switch {
	case first == len(word):
		return word
	case base16, strings.IndexFunc(word[first:], func(r rune) bool { return r >= utf8.RuneSelf || isLetter(byte(r)) }) >= 0:
		return "#"
	}
	return word[:first] + "#"
}
