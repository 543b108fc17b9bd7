package wire

import (
	"fmt"
	"strconv"
)

// A Count is a number from 1 on as text, or a word where there is no limit: All of what is kept,
// Unlimited of what may happen. The empty text means that nothing is said.
type Count string

// Words in the place of a number.
const (
	All       Count = "all"
	Unlimited Count = "none"
)

// CountOf formats a number. The word replaces the number by which a library means it.
func CountOf(n int, word Count, means int) Count {
	if n == means {
		return word
	}
	return Count(strconv.Itoa(n))
}

// Number is the inverse of CountOf. It refuses a number of more than most.
func (c Count) Number(word Count, means, most int) (int, error) {
	if c == word {
		return means, nil
	}
	n, err := strconv.Atoi(string(c))
	if err != nil || n < 1 || n > most || c[0] == '+' || c[0] == '0' {
		return 0, fmt.Errorf("%q is neither a number from 1 to %d nor %s", string(c), most, word)
	}
	return n, nil
}
