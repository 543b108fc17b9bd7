package health

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"strings"
	"time"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/internal/sqlrun"
)

// A File is a file from which a daemon imports schedules, as last read, which is recorded for people.
type File struct {
	Source  string // of the schedules: see scheduler.Import
	Node    string // the daemon that read it
	Digest  string // of its content
	Problem string // why the import failed; "": it succeeded
	Read    time.Time
	Ago     time.Duration // since Read, when the files were listed
}

// ofContent is how many digits of a digest are the content's.
const ofContent = 48

// Digest returns a digest of a file, and of the zone that its lines have unless they say another.
func Digest(content []byte, zone string) string {
	ofFile, ofZone := sha256.Sum256(content), sha256.Sum256([]byte(zone))
	digest := hex.EncodeToString(ofFile[:])
	return digest[:ofContent] + hex.EncodeToString(ofZone[:])[:len(digest)-ofContent]
}

// onlyZone reports whether two files that differ are one, read in different zones.
func (f *File) onlyZone(other *File) bool {
	return len(f.Digest) > ofContent && len(other.Digest) > ofContent && f.Digest[:ofContent] == other.Digest[:ofContent]
}

// settled is how long a daemon may take to read a file that another one has read already: it looks every five seconds, twice.
const settled = 30 * time.Second

// Differs reports whether two daemons have different files, and neither of them is just reading a change.
func (f *File) Differs(other *File) bool {
	return f.Digest != other.Digest && min(f.Ago, other.Ago) >= settled
}

var (
	// fileAgain and fileFirst cannot collide: a daemon writes only rows under its own, unique name.
	fileAgain = sqlrun.SQL("scheduler.file-again", `
		UPDATE {prefix}schedule_file SET digest = :digest, problem = :problem, read_at = {now} WHERE source = :source AND node = :node`)

	fileFirst = sqlrun.SQL("scheduler.file-first", `
		INSERT INTO {prefix}schedule_file (source, node, digest, problem, read_at) VALUES (:source, :node, :digest, :problem, {now}) {ignore_duplicate source}`)

	fileLeft = sqlrun.SQL("scheduler.file-left", `DELETE FROM {prefix}schedule_file WHERE source = :source AND node = :node`)

	// fileHeld finds daemons that live, and those that have just begun and are not yet in the table of nodes.
	fileHeld = sqlrun.SQL("scheduler.file-held", `
		SELECT f.node FROM {prefix}schedule_file AS f
		WHERE f.source = :source AND (EXISTS (SELECT 1 FROM {prefix}node AS n WHERE n.name = f.node AND n.state <> 'gone' AND n.expire_at > {now})
			OR f.read_at > {now + :ago} AND NOT EXISTS (SELECT 1 FROM {prefix}node AS n WHERE n.name = f.node)) LIMIT 1`)

	sourcesBelow = sqlrun.SQL("scheduler.sources-below", `
		SELECT DISTINCT source FROM {prefix}schedule WHERE source > :after AND source < :end ORDER BY source LIMIT :limit`)

	filesLeft = sqlrun.SQL("scheduler.files-left", `DELETE FROM {prefix}schedule_file WHERE node = :node`)

	// filesOfDead removes the rows of daemons that were killed.
	filesOfDead = sqlrun.SQL("scheduler.files-of-dead", `
		DELETE FROM {prefix}schedule_file WHERE read_at < {now + :ago}
			AND NOT EXISTS (SELECT 1 FROM {prefix}node AS n WHERE n.name = node)`)

	listFiles = sqlrun.SQL("scheduler.files", `
		SELECT f.source, f.node, f.digest, f.problem, {us f.read_at}, {us {now}} FROM {prefix}schedule_file AS f
		WHERE EXISTS (SELECT 1 FROM {prefix}node AS n WHERE n.name = f.node AND n.state <> 'gone' AND n.expire_at > {now})
		ORDER BY f.source, f.node LIMIT :limit`)
)

// storable returns an error's text in a form that every engine stores, whatever it quotes.
func storable(text string) string {
	text = strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
	if len(text) > 4000 {
		text = strings.ToValidUTF8(text[:4000], "") + " …"
	}
	return text
}

// NoteFile records how a daemon last read a file. ListFiles lists the records.
func NoteFile(ctx context.Context, db *dialect.DB, f File) error {
	args := sqlrun.Args{"source": f.Source, "node": f.Node, "digest": f.Digest, "problem": storable(f.Problem)}
	n, err := db.Exec(ctx, fileAgain, args)
	if err == nil && n == 0 {
		_, err = db.Exec(ctx, fileFirst, args)
	}
	if err == nil {
		_, err = db.Exec(ctx, filesOfDead, sqlrun.Args{"ago": -(24 * time.Hour).Microseconds()})
	}
	return err
}

// ForgetFiles removes what a stopping daemon recorded with NoteFile.
func ForgetFiles(ctx context.Context, db *dialect.DB, node string) error {
	_, err := db.Exec(ctx, filesLeft, sqlrun.Args{"node": node})
	return err
}

// ListFiles returns up to limit files of live daemons, ordered by source. Daemons with different
// files under one source undo each other's imports.
func ListFiles(ctx context.Context, db *dialect.DB, limit int) ([]File, error) {
	return sqlrun.Select(ctx, &db.Session, listFiles, sqlrun.Args{"limit": limit}, func(rows *sql.Rows) (f File, err error) {
		var read, now int64
		err = rows.Scan(&f.Source, &f.Node, &f.Digest, &f.Problem, &read, &now)
		f.Read, f.Ago = time.UnixMicro(read).UTC(), time.Duration(now-read)*time.Microsecond
		return f, err
	})
}

// ForgetFile removes what a daemon recorded of a file that it reads no more.
func ForgetFile(ctx context.Context, db *dialect.DB, source, node string) error {
	_, err := db.Exec(ctx, fileLeft, sqlrun.Args{"source": source, "node": node})
	return err
}

// HasFile reports whether a daemon has recorded that it reads a file, and lives, or began within the last minutes.
func HasFile(ctx context.Context, db *dialect.DB, source string) (bool, error) {
	nodes, err := sqlrun.Select(ctx, &db.Session, fileHeld, sqlrun.Args{"source": source, "ago": -(5 * time.Minute).Microseconds()}, scanText)
	return len(nodes) > 0, err
}

// SourcesBelow returns the sources of schedules that begin with a folder, which ends with a slash, in order.
func SourcesBelow(ctx context.Context, db *dialect.DB, folder string) (all []string, err error) {
	const most = 1000
	args := sqlrun.Args{"after": folder, "end": strings.TrimSuffix(folder, "/") + string('/'+1), "limit": most}
	for {
		part, err := sqlrun.Select(ctx, &db.Session, sourcesBelow, args, scanText)
		all = append(all, part...)
		if err != nil || len(part) < most {
			return all, err
		}
		args["after"] = part[most-1]
	}
}

func scanText(rows *sql.Rows) (text string, err error) { return text, rows.Scan(&text) }
