package sqlrun

import "strings"

// Statements about rows that others may hold. What a process does for all its work must not wait for
// one row: a stranger's transaction may keep it locked for hours. These statements pass over rows that
// another transaction has locked, and leave them to a later round. The caller learns from the number of
// changed rows that some are left; it cannot tell locked rows from missing ones.

// UpdateFree is an UPDATE of the rows of a table that meet a condition and are not locked. key is the
// table's key. Neither set nor where may depend on the order of the assignments in set: of an UPDATE with
// several tables no engine promises it.
//
// Where the condition has subqueries, it waits on engines that would lock what these read: see
// Dialect.LocksReads. A brief DB bounds that.
func UpdateFree(name, table string, key []string, set, where string) *Stmt {
	return PerDialect(name, func(d *Dialect) string {
		if d.LocksReads && strings.Contains(where, "(SELECT ") {
			return "UPDATE " + table + " SET " + set + " WHERE " + where
		}
		condition := ""
		if ofQueue := "queue_id = :queue"; strings.HasPrefix(where, ofQueue+" ") { // for an engine that chooses partitions by it
			condition = table + "." + ofQueue
		}
		return d.UpdateFrom(table, key, set, condition, freeRows(table, key, where))
	})
}

// DeleteFree is a DELETE of the rows of a table that meet a condition and are not locked, with the same
// exception.
func DeleteFree(name, table string, key []string, where string) *Stmt {
	return PerDialect(name, func(d *Dialect) string {
		if d.LocksReads && strings.Contains(where, "(SELECT ") {
			return "DELETE FROM " + table + " WHERE " + where
		}
		return d.DeleteFrom(table, key, freeRows(table, key, where))
	})
}

func freeRows(table string, key []string, where string) string {
	// With a LIMIT, since an engine would merge a plain subquery into the statement, and wait.
	return "SELECT " + strings.Join(key, ", ") + " FROM " + table + " WHERE " + where + " LIMIT 10000 {skip_locked}"
}
