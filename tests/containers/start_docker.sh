#!/usr/bin/env bash
# Start a Docker daemon by hand on a machine that has none running: a CI job without systemd, a container.
#
#   tests/containers/start_docker.sh [LOG_FILE]      prints the daemon's pid once it answers
#
# Needs root and Debian's or Ubuntu's package: apt-get update && apt-get install -y docker.io
# The daemon leaves the machine's firewall alone (no iptables, no forwarding): published ports go through
# docker-proxy and are bound to the loopback address, which is all that the tests need. Stop it with kill PID.
set -euo pipefail
LOG=${1:-${TMPDIR:-/tmp}/dockerd.log}

if docker version > /dev/null 2>&1; then
  echo "a Docker engine already answers" >&2
  exit 0
fi
command -v dockerd > /dev/null || { echo "dockerd is missing: apt-get update && apt-get install -y docker.io" >&2; exit 2; }
[ "$(id -u)" = 0 ] || { echo "dockerd has to be started by root: sudo $0 $*" >&2; exit 2; }

setsid dockerd --iptables=false --ip-masq=false --ip-forward=false --ip 127.0.0.1 > "$LOG" 2>&1 < /dev/null &
PID=$!
for _ in $(seq 150); do
  docker version > /dev/null 2>&1 && { echo "$PID"; exit 0; }
  kill -0 "$PID" 2> /dev/null || break
  sleep 0.2
done
echo "dockerd did not come up; its log, $LOG, ends with:" >&2
tail -5 "$LOG" >&2
exit 1
