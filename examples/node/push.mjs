// Processes pushed jobs: the daemon sends each to this address, and the answer is its outcome.
//
//   DBCRON_SECRET=whsec_… node push.mjs 127.0.0.1 9000
//
// The signature proves that a request is the daemon's. A job can be sent more than once; its id, in
// the header Idempotency-Key, stays the same.
import { createHmac, timingSafeEqual } from 'node:crypto'
import { createServer } from 'node:http'

const secrets = process.env.DBCRON_SECRET.split(' ') // two during a rotation
const tolerance = 300 // seconds

class Permanent extends Error {}

// Your work. A Permanent error makes the job a dead letter; after any other it is retried.
async function handle(kind, payload) {
  if (payload?.to === undefined) throw new Permanent('there is nobody to write to')
  console.log('mail to', payload.to)
}

function verified(headers, body) {
  const stamp = headers['webhook-timestamp'] ?? ''
  if (!/^\d{1,12}$/.test(stamp) || Math.abs(Date.now() / 1000 - Number(stamp)) > tolerance) return false
  const given = (headers['webhook-signature'] ?? '').split(' ').filter((s) => s.startsWith('v1,'))
  let good = false
  for (const secret of secrets) {
    const key = Buffer.from(secret.replace(/^whsec_/, ''), 'base64')
    const want = createHmac('sha256', key).update(`${headers['webhook-id']}.${stamp}.`).update(body).digest()
    for (const one of given) {
      const got = Buffer.from(one.slice(3), 'base64')
      if (got.length === want.length && timingSafeEqual(got, want)) good = true
    }
  }
  return good
}

async function answer(request) {
  const chunks = []
  for await (const chunk of request) chunks.push(chunk)
  const body = Buffer.concat(chunks)
  if (!verified(request.headers, body)) return [401, 'failure', 'the signature is not good']
  try {
    await handle(request.headers['dbcron-kind'], JSON.parse(body))
    return [200, 'success', '']
  } catch (error) {
    return error instanceof Permanent ? [410, 'permanent-failure', error.message] : [500, 'failure', String(error)]
  }
}

const server = createServer(async (request, response) => {
  const [code, status, message] = await answer(request)
  response.writeHead(code, { 'Content-Type': 'application/json' }).end(JSON.stringify({ status, message }))
}).listen(Number(process.argv[3]), process.argv[2])
process.once('SIGTERM', () => server.close()) // after answering current requests
