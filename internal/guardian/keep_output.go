package guardian

// An Output keeps the head and the tail of what is written to it, like the output of a command, for work
// that is not a command. It is safe for concurrent use.
type Output struct{ kept *output }

// NewOutput returns an Output that keeps limit bytes; 0 means 64 KiB.
func NewOutput(limit int) *Output {
	if limit <= 0 {
		limit = defaultOutput
	}
	return &Output{newOutput(limit)}
}

// Write never fails.
func (o *Output) Write(p []byte) (int, error) { return o.kept.Write(p) }

// Text returns what was kept, in the form of Result.Output.
func (o *Output) Text() string {
	text, _ := o.Snapshot()
	return text
}

// Snapshot returns the text, and the total of bytes written, which tells whether it has changed.
func (o *Output) Snapshot() (text string, total int) {
	o.kept.mu.Lock()
	defer o.kept.mu.Unlock()
	text, _ = o.kept.joined()
	return text, int(o.kept.total)
}
