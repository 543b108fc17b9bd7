package sqlrun

import (
	"context"
	"database/sql"
	"fmt"
)

// A Strain is a query for what makes a server slow over time. It returns one line per problem.
type Strain struct {
	Subject, Query string
	Args           []any
	Fine           string // the finding if there is no line; "": none
	Advice         string
}

// Strains runs the queries. It skips those that the user may not run.
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
