#!/usr/bin/env bash
# The statement of each queue on SQL, in parsers of npm. node-sql-parser 5.4.0 reads SKIP LOCKED and NOWAIT for MySQL and MariaDB, and FOR UPDATE behind LIMIT not for PostgreSQL, which had
# them first; for SQLite it reads FOR UPDATE, and leaves it out of what it writes. For MariaDB and SQLite, "now() + interval '1 hour'" becomes a column named interval with the alias "1 hour".
# pgsql-ast-parser 12.0.2 knows SKIP LOCKED and not OF; pgsql-parser 18.2.8 knows all, and moves a LIMIT behind FOR UPDATE before it.
# Seen on 2026-11-29 with Node.js 20.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
npm install --silent --no-audit --no-fund node-sql-parser@5.4.0 pgsql-ast-parser@12.0.2 pgsql-parser@18.2.8 >/dev/null
cat >look.mjs <<'CODE'
import sql from 'node-sql-parser';
import * as ast from 'pgsql-ast-parser';
import { deparse, parse } from 'pgsql-parser';
const parser = new sql.Parser();
const as = database => text => parser.sqlify(parser.astify(text, { database }), { database });
const of = {
  'node-sql-parser postgresql': as('postgresql'),
  'node-sql-parser mysql': as('mysql'),
  'node-sql-parser mariadb': as('mariadb'),
  'node-sql-parser sqlite': as('sqlite'),
  'pgsql-ast-parser': text => ast.toSql.statement(ast.parseFirst(text)),
  'pgsql-parser': async text => deparse(await parse(text)),
};
for (const text of [
  'SELECT id FROM job ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED',
  'SELECT id FROM job LIMIT 1 FOR UPDATE',
  'SELECT id FROM job FOR UPDATE NOWAIT',
  'SELECT id FROM job FOR UPDATE OF job SKIP LOCKED',
  'SELECT id FROM job FOR UPDATE LIMIT 1',
  "SELECT now() + interval '1 hour'",
]) {
  console.log(text);
  for (const [name, read] of Object.entries(of)) {
    let said = 'refuses';
    try {
      said = (await read(text)).replace(/\s+/g, ' ');
    } catch {}
    console.log(' ', name.padEnd(26), said);
  }
}
CODE
cat >seen <<'SEEN'
SELECT id FROM job ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED
  node-sql-parser postgresql refuses
  node-sql-parser mysql      SELECT `id` FROM `job` ORDER BY `id` ASC LIMIT 1 FOR UPDATE SKIP LOCKED
  node-sql-parser mariadb    SELECT `id` FROM `job` ORDER BY `id` ASC LIMIT 1 FOR UPDATE SKIP LOCKED
  node-sql-parser sqlite     refuses
  pgsql-ast-parser           SELECT id FROM job ORDER BY id LIMIT (1)FOR UPDATE SKIP LOCKED
  pgsql-parser               SELECT id FROM job ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED
SELECT id FROM job LIMIT 1 FOR UPDATE
  node-sql-parser postgresql refuses
  node-sql-parser mysql      SELECT `id` FROM `job` LIMIT 1 FOR UPDATE
  node-sql-parser mariadb    SELECT `id` FROM `job` LIMIT 1 FOR UPDATE
  node-sql-parser sqlite     SELECT "id" FROM "job" LIMIT 1
  pgsql-ast-parser           SELECT id FROM job LIMIT (1)FOR UPDATE
  pgsql-parser               SELECT id FROM job LIMIT 1 FOR UPDATE
SELECT id FROM job FOR UPDATE NOWAIT
  node-sql-parser postgresql refuses
  node-sql-parser mysql      SELECT `id` FROM `job` FOR UPDATE NOWAIT
  node-sql-parser mariadb    SELECT `id` FROM `job` FOR UPDATE NOWAIT
  node-sql-parser sqlite     refuses
  pgsql-ast-parser           SELECT id FROM job FOR UPDATE NOWAIT
  pgsql-parser               SELECT id FROM job FOR UPDATE NOWAIT
SELECT id FROM job FOR UPDATE OF job SKIP LOCKED
  node-sql-parser postgresql refuses
  node-sql-parser mysql      refuses
  node-sql-parser mariadb    refuses
  node-sql-parser sqlite     refuses
  pgsql-ast-parser           refuses
  pgsql-parser               SELECT id FROM job FOR UPDATE OF job SKIP LOCKED
SELECT id FROM job FOR UPDATE LIMIT 1
  node-sql-parser postgresql refuses
  node-sql-parser mysql      SELECT `id` FROM `job` FOR UPDATE LIMIT 1
  node-sql-parser mariadb    SELECT `id` FROM `job` FOR UPDATE LIMIT 1
  node-sql-parser sqlite     refuses
  pgsql-ast-parser           refuses
  pgsql-parser               SELECT id FROM job LIMIT 1 FOR UPDATE
SELECT now() + interval '1 hour'
  node-sql-parser postgresql SELECT now() + INTERVAL '1 hour'
  node-sql-parser mysql      refuses
  node-sql-parser mariadb    SELECT now() + `interval` AS `1 hour`
  node-sql-parser sqlite     SELECT now() + "interval" AS "1 hour"
  pgsql-ast-parser           SELECT ((now () ) + (('1 hour')::interval ))
  pgsql-parser               SELECT now() + '1 hour'::interval
SEEN
diff seen <(node look.mjs) && echo "as seen"
