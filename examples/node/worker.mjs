// Pulls the jobs of a queue: it claims them from a daemon and reports their outcomes.
//
//   node worker.mjs mail
//
// DBCRON_API names the daemon, DBCRON_TOKEN is a token with the scope work, if there are
// tokens. Start as many as you like. On SIGTERM it finishes its current jobs.
import { setTimeout as sleep } from 'node:timers/promises'

const api = process.env.DBCRON_API ?? 'http://127.0.0.1:8686/api/v1'
const token = process.env.DBCRON_TOKEN
const stopping = new AbortController()
process.once('SIGTERM', () => stopping.abort())

class Permanent extends Error {}

// Your work. A Permanent error makes the job a dead letter; after any other it is retried.
async function handle(job) {
  if (job.payload?.to === undefined) throw new Permanent('there is nobody to write to')
  console.log('mail to', job.payload.to)
}

async function post(path, body, signal = AbortSignal.timeout(60_000)) {
  const answer = await fetch(api + path, {
    method: 'POST',
    body: JSON.stringify(body),
    headers: { 'Content-Type': 'application/json', ...(token && { Authorization: 'Bearer ' + token }) },
    signal,
  })
  const text = await answer.text()
  if (!answer.ok) throw new Error(`${path}: ${answer.status}: ${text}`)
  return JSON.parse(text)
}

async function work({ token, ...job }) {
  const renew = setInterval(() => { // otherwise another worker gets the job after its lease
    post('/claims/heartbeat', { claims: [{ token }], lease: '30s' }).catch(console.error)
  }, 10_000)
  try {
    const failed = await handle(job).then(() => null, (error) => error)
    if (failed === null) await post('/claims/complete', { claims: [{ token }] })
    else await post('/claims/fail', { claims: [{ token, error: String(failed), dead: failed instanceof Permanent }] })
  } catch (error) {
    console.error(error) // a job without a reported outcome runs again after its lease
  } finally {
    clearInterval(renew)
  }
}

const queue = encodeURIComponent(process.argv[2])
while (!stopping.signal.aborted) {
  try {
    const { jobs } = await post(`/queues/${queue}/claim`, { max: 10, lease: '30s', wait: '20s' }, stopping.signal)
    await Promise.all(jobs.map(work))
  } catch (error) {
    if (stopping.signal.aborted) break
    console.error(error)
    await sleep(500 + 1500 * Math.random())
  }
}
