// A foreign holder of locks: redlock of npm, driven line by line.
//
//   node redlock.js SOCKET...       one Redis master or several
//   acquire KEY TTL_MS              held OWNER | refused    in hex
//   extend TTL_MS                   extended | lost
//   release                         released
//   count FILE TIMES KEY TTL_MS     counted    adds 1 to the number in FILE, so many times, each under the lock
//   wreck FILE TIMES                counted    the same without a lock
//   share FILE KEY TTL_MS MS HOLD_MS  shared TURNS   adds 1 to the number in FILE as often as it gets the lock within MS, and
//                                                    holds it for HOLD_MS; pauses of 30 to 60 ms
//
// For benches, times in microseconds:
//   cycle KEY TTL_MS AT_A_TIME MS             cycled CYCLES FAILED TIME P50 P99        each cycle acquires and releases a lock
//                                                                                      that nobody else wants
//   contend KEY TTL_MS CLIENTS TIMES HOLD_MS  contended TURNS TIME P50 P99 LONGEST     so many clients, with connections of
//                                                                                      their own, take turns at one lock
'use strict'

const fs = require('fs')
const readline = require('readline')
const Redis = require('ioredis')
const Redlock = require('redlock').default

const connect = () => {
  const masters = process.argv.slice(2).map((path) => new Redis({ path }))
  return new Redlock(masters, { retryCount: 0 })
}
const redlock = connect()
const contenders = []
let lock

const pause = (ms) => new Promise((wake) => setTimeout(wake, ms))
const often = () => 20 * Math.random()
const usual = () => 30 + 30 * Math.random()
// redlock's own: a retryDelay of 200 and a retryJitter of 100.
const byDefault = () => 200 + 100 * (2 * Math.random() - 1)

// Instead of a retryCount: between its retries redlock keeps what a lost attempt got, and is in its own way until that
// runs out.
async function acquireAtLast(client, key, ttl, delay) {
  for (;;) {
    try {
      return await client.acquire([key], ttl)
    } catch (refusal) {
      await pause(delay())
    }
  }
}

async function addOne(file, ms = 1) {
  const seen = Number(fs.readFileSync(file, 'utf8'))
  await pause(ms)
  fs.writeFileSync(file, String(seen + 1))
}

const commands = {
  async acquire(key, ttl) {
    try {
      lock = await redlock.acquire([key], Number(ttl))
    } catch (refusal) {
      return 'refused'
    }
    return 'held ' + Buffer.from(lock.value).toString('hex')
  },
  async extend(ttl) {
    try {
      lock = await lock.extend(Number(ttl))
    } catch (refusal) {
      return 'lost'
    }
    return 'extended'
  },
  async release() {
    await lock.release()
    return 'released'
  },
  async count(file, times, key, ttl) {
    for (let n = 0; n < Number(times); n++) {
      const held = await acquireAtLast(redlock, key, Number(ttl), often)
      await addOne(file)
      await held.release()
    }
    return 'counted'
  },
  async share(file, key, ttl, ms, hold) {
    const until = performance.now() + Number(ms)
    let turns = 0
    for (; performance.now() < until; turns++) {
      const held = await acquireAtLast(redlock, key, Number(ttl), usual)
      await addOne(file, Number(hold))
      await held.release()
      await pause(usual())
    }
    return 'shared ' + turns
  },
  async wreck(file, times) {
    for (let n = 0; n < Number(times); n++) await addOne(file)
    return 'counted'
  },
  async cycle(key, ttl, atATime, ms) {
    const took = []
    let failed = 0
    const start = performance.now()
    const work = async (n) => {
      for (;;) {
        const began = performance.now()
        if (began - start >= Number(ms)) return
        try {
          await (await redlock.acquire([`${key}-${n}`], Number(ttl))).release()
          took.push(performance.now() - began)
        } catch (refusal) {
          failed++
          await pause(1)
        }
      }
    }
    await Promise.all(Array.from({ length: Number(atATime) }, (_, n) => work(n)))
    const time = performance.now() - start
    const of = percentiles(took)
    return ['cycled', took.length, failed, micros(time), of(50), of(99)].join(' ')
  },
  async contend(key, ttl, clients, times, hold) {
    while (contenders.length < Number(clients)) {
      const client = connect()
      // Connected before the time is taken.
      await (await client.acquire([`${key}-${contenders.length}`], Number(ttl))).release()
      contenders.push(client)
    }
    const waits = []
    const start = performance.now()
    const work = async (client) => {
      for (let n = 0; n < Number(times); n++) {
        const began = performance.now()
        const held = await acquireAtLast(client, key, Number(ttl), byDefault)
        waits.push(performance.now() - began)
        await pause(Number(hold))
        await held.release()
      }
    }
    await Promise.all(contenders.slice(0, Number(clients)).map(work))
    const time = performance.now() - start
    const of = percentiles(waits)
    return ['contended', waits.length, micros(time), of(50), of(99), of(100)].join(' ')
  },
}

const micros = (ms) => Math.round(1000 * ms)

function percentiles(took) {
  const sorted = Float64Array.from(took).sort()
  return (percent) => micros(sorted[Math.min(Math.floor((sorted.length * percent) / 100), sorted.length - 1)] || 0)
}

async function main() {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const [command, ...words] = line.split(' ')
    console.log(await commands[command](...words))
  }
  process.exit(0)
}

main()
