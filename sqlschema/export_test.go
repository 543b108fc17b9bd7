package sqlschema

// WriteSQL is SQL with further migrations.
var WriteSQL = writeSQL

// Checksum is what a migration records of its text.
var Checksum = checksum
