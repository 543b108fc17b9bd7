package sqlrun

// SharePermit reports whether the writers of two DBs wait for each other.
func SharePermit(a, b *DB) bool { return a.writing.file != nil && a.writing.file == b.writing.file }
