package jobfield

import (
	"crypto/rand"
	"encoding/hex"
	"strings"
)

// longestTrace limits the length: future versions may be longer than version 00.
const longestTrace = 512

// NewTrace returns a traceparent header of W3C Trace Context that begins a trace.
func NewTrace() string {
	var id [24]byte
	_, _ = rand.Read(id[:]) // never fails
	return "00-" + hex.EncodeToString(id[:16]) + "-" + hex.EncodeToString(id[16:]) + "-01"
}

// ValidTrace reports whether text is a traceparent of version 00, or of a future version that begins like one.
func ValidTrace(text string) bool {
	if len(text) < 55 || len(text) > longestTrace || text[2] != '-' || text[35] != '-' || text[52] != '-' {
		return false
	}
	version, trace, parent, flags := text[:2], text[3:35], text[36:52], text[53:55]
	if !isHex(version) || !isHex(trace) || !isHex(parent) || !isHex(flags) || version == "ff" ||
		strings.Trim(trace, "0") == "" || strings.Trim(parent, "0") == "" {
		return false
	}
	rest := text[55:]
	return rest == "" || version != "00" && rest[0] == '-' && !strings.ContainsFunc(rest, func(r rune) bool { return r <= ' ' || r > '~' })
}

func isHex(text string) bool {
	return strings.Trim(text, "0123456789abcdef") == ""
}
