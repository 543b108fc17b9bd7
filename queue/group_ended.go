package queue

import "slices"

// tied reports whether the job has rows in other tables. It has to be ended by a transaction that
// knows which jobs it has ended.
func (j *Job) tied() bool { return j.Unique != "" || j.Group != 0 }

func anyTied(rows []jobRow) bool {
	return slices.ContainsFunc(rows, func(r jobRow) bool { return r.tied() })
}
