"""A foreign holder of locks: Lock of redis-py or Redlock of pottery, driven line by line.

  python3 lock.py redis|pottery SOCKET...     one Redis master, for pottery also several
  acquire KEY TTL_MS                          held OWNER | refused    in hex
  extend TTL_MS                               extended | lost
  release                                     released
  count FILE TIMES KEY TTL_MS                 counted    adds 1 to the number in FILE, so many times, each under the lock
  wreck FILE TIMES                            counted    the same without a lock
"""
import sys
import time
from pathlib import Path

from pottery import Redlock
from redis import Redis
from redis.lock import Lock

masters = [Redis(unix_socket_path=path) for path in sys.argv[2:]]


class OfRedis:
    """redis-py: one master."""

    def __init__(self, key, ttl):
        self.lock = Lock(masters[0], key, timeout=ttl, sleep=0.01)

    def acquire(self, blocking):
        return self.lock.acquire(blocking=blocking)

    def owner(self):
        return self.lock.local.token.decode()

    def extend(self):
        return self.lock.reacquire()

    def release(self):
        self.lock.release()


class OfPottery:
    """pottery: a majority. Its keys begin with `redlock:`, which the caller's have."""

    def __init__(self, key, ttl):
        name = key.removeprefix('redlock:')
        self.lock = Redlock(key=name, masters=masters, auto_release_time=ttl, num_extensions=1000)

    def acquire(self, blocking):
        return self.lock.acquire(blocking=blocking)

    def owner(self):
        return self.lock._uuid

    def extend(self):
        self.lock.extend()

    def release(self):
        self.lock.release()


def add_one(file):
    seen = int(file.read_text() or 0)
    time.sleep(0.001)
    file.write_text(str(seen + 1))


class Commands:
    make = {'redis': OfRedis, 'pottery': OfPottery}[sys.argv[1]]
    lock = None

    def acquire(self, key, ttl):
        lock = self.make(key, int(ttl) / 1000)
        if not lock.acquire(blocking=False):
            return 'refused'
        self.lock = lock
        return 'held ' + lock.owner().encode().hex()

    def extend(self, _ttl):
        try:
            self.lock.extend()
        except Exception:
            return 'lost'
        return 'extended'

    def release(self):
        self.lock.release()
        return 'released'

    def count(self, file, times, key, ttl):
        for _ in range(int(times)):
            # A new one each time: pottery's may still be releasing on the slowest master.
            lock = self.make(key, int(ttl) / 1000)
            lock.acquire(blocking=True)
            add_one(Path(file))
            lock.release()
        return 'counted'

    def wreck(self, file, times):
        for _ in range(int(times)):
            add_one(Path(file))
        return 'counted'


commands = Commands()
for line in sys.stdin:
    command, *words = line.split()
    print(getattr(commands, command)(*words), flush=True)
