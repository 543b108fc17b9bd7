package sqlschema

// WriteSQL is SQL with further migrations.
var WriteSQL = writeSQL

// The last of the numbers that are gone, and the one that stands for them.
const (
	OldLatest = oldLatest
	Squashed  = squashed
)
