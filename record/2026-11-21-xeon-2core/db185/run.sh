#!/bin/sh
# usage: run.sh DIRECTORY_OF_PROGRAMS KEYS ROUNDS: each engine in turn, processor nanoseconds per key.
for round in $(seq "$3"); do
  for cache in 65536 67108864; do
    for engine in race race185 race53; do
      "$1/$engine" "$2" /dev/shm/race.db "$cache" | sed "s/^/$round $cache $engine /"
      rm -f /dev/shm/race.db
    done
  done
done
