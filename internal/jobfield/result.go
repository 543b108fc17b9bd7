package jobfield

import (
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"
)

// LongestResult is the maximum size of a result in bytes.
const LongestResult = 1 << 20

// EncodeResult returns the result of a job of a group as JSON, or why it cannot be stored.
func EncodeResult(v any) ([]byte, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	if !utf8.Valid(text) { // a RawMessage may be invalid, and the database would refuse the job's end
		return nil, errors.New("it is not UTF-8")
	}
	if len(text) > LongestResult {
		return nil, fmt.Errorf("it has %d bytes, and up to %d are kept; store it elsewhere and set its name", len(text), LongestResult)
	}
	return text, nil
}
