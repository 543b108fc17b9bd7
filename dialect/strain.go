package dialect

import (
	"context"
	"database/sql"
	"fmt"
)

// A Strain is a question about what makes a server slow in the long run. Its query returns a
// line for each thing that is wrong.
type Strain struct {
	Subject, Query string
	Args           []any
	Fine           string // what is said if there is no line; "": nothing
	Advice         string
}

// Strains asks. What the user may not see is passed over.
func (db *DB) Strains(ctx context.Context, all []Strain) (found []Finding, err error) {
	for i := range all {
		s := &all[i]
		lines, err := db.linesOf(ctx, s)
		switch {
		case err != nil && db.Dialect.Denied(err):
			continue
		case err != nil:
			return found, fmt.Errorf("%s: %w", s.Subject, err)
		case len(lines) == 0 && s.Fine != "":
			found = append(found, Finding{Subject: s.Subject, OK: true, Detail: s.Fine})
		}
		for _, line := range lines {
			found = append(found, Finding{Subject: s.Subject, Detail: line, Advice: s.Advice})
		}
	}
	return found, nil
}

func (db *DB) linesOf(ctx context.Context, s *Strain) (all []string, err error) {
	rows, err := db.pool.QueryContext(ctx, s.Query, s.Args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var line sql.NullString
		if err := rows.Scan(&line); err != nil {
			return nil, err
		}
		if line.Valid {
			all = append(all, line.String)
		}
	}
	return all, rows.Err()
}
