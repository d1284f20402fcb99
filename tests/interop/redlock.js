// A foreign holder of locks: redlock of npm, driven line by line.
//
//   node redlock.js SOCKET...       one Redis master or several
//   acquire KEY TTL_MS              held OWNER | refused    in hex
//   extend TTL_MS                   extended | lost
//   release                         released
//   count FILE TIMES KEY TTL_MS     counted    adds 1 to the number in FILE, so many times, each under the lock
//   wreck FILE TIMES                counted    the same without a lock
'use strict'

const fs = require('fs')
const readline = require('readline')
const Redis = require('ioredis')
const Redlock = require('redlock').default

const masters = process.argv.slice(2).map((path) => new Redis({ path }))
const redlock = new Redlock(masters, { retryCount: 0 })
let lock

const pause = (ms) => new Promise((wake) => setTimeout(wake, ms))

// Instead of a retryCount: between its retries redlock keeps what a lost attempt got, and is in its own way until that
// runs out.
async function acquireAtLast(key, ttl) {
  for (;;) {
    try {
      return await redlock.acquire([key], ttl)
    } catch (refusal) {
      await pause(20 * Math.random())
    }
  }
}

async function addOne(file) {
  const seen = Number(fs.readFileSync(file, 'utf8'))
  await pause(1)
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
      const held = await acquireAtLast(key, Number(ttl))
      await addOne(file)
      await held.release()
    }
    return 'counted'
  },
  async wreck(file, times) {
    for (let n = 0; n < Number(times); n++) await addOne(file)
    return 'counted'
  },
}

async function main() {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const [command, ...words] = line.split(' ')
    console.log(await commands[command](...words))
  }
  process.exit(0)
}

main()
