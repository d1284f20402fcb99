// A foreign holder of locks: redlock of npm, driven line by line.
//
//   node redlock.js SOCKET...       one Redis master or several
//   acquire KEY TTL_MS              held OWNER | refused
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
const once = new Redlock(masters, { retryCount: 0 })
const stubborn = new Redlock(masters, { retryCount: -1, retryDelay: 10, retryJitter: 10 })
let lock

async function addOne(file) {
  const seen = Number(fs.readFileSync(file, 'utf8'))
  await new Promise((wake) => setTimeout(wake, 1))
  fs.writeFileSync(file, String(seen + 1))
}

const commands = {
  async acquire(key, ttl) {
    try {
      lock = await once.acquire([key], Number(ttl))
    } catch (refusal) {
      return 'refused'
    }
    return 'held ' + lock.value
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
      const held = await stubborn.acquire([key], Number(ttl))
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
