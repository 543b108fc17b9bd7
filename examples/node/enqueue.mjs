// Enqueues a job exactly once, however often the request has to be sent.
//
//   node enqueue.mjs mail welcome '{"to": "ada@example.org"}'
//
// DBCRON_API names the daemon, DBCRON_TOKEN is a token with the scope enqueue, if there are
// tokens.
import { randomUUID } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'

const api = process.env.DBCRON_API ?? 'http://127.0.0.1:8686/api/v1'
const token = process.env.DBCRON_TOKEN

// enqueue returns the job's id. With a key that the caller stores, the job is enqueued once
// across processes, too.
async function enqueue(queue, kind, payload, key = randomUUID(), tries = 6) {
  for (let n = 1; ; n++) {
    try {
      const answer = await fetch(api + '/jobs', {
        method: 'POST',
        body: JSON.stringify({ queue, kind, payload }),
        headers: {
          'Content-Type': 'application/json',
          'Idempotency-Key': key,
          ...(token && { Authorization: 'Bearer ' + token }),
        },
        signal: AbortSignal.timeout(60_000),
      })
      const text = await answer.text()
      if (answer.ok) return JSON.parse(text).id
      const error = new Error(`${answer.status}: ${text}`)
      error.refused = ![502, 503, 504].includes(answer.status)
      throw error
    } catch (error) { // not refused: the request or the answer was lost
      if (error.refused || n === tries) throw error
    }
    await sleep((100 + 100 * Math.random()) * 2 ** (n - 1))
  }
}

const [queue, kind, payload] = process.argv.slice(2)
if (payload === undefined) {
  console.error('usage: enqueue.mjs QUEUE KIND PAYLOAD')
  process.exit(2)
}
console.log(await enqueue(queue, kind, JSON.parse(payload)))
