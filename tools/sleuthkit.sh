#!/bin/sh
# sleuthkit.sh: The Sleuth Kit's mactime for the test of timelines, from Debian's packages; does nothing if there is one. Where it cannot be
# installed (no apt-get, not root) it says so and ends well: the test fails and names what is missing.
set -eu
say() { printf 'sleuthkit: %s\n' "$*" >&2; }

if command -v mactime >/dev/null 2>&1; then
  exit 0
fi
if ! command -v apt-get >/dev/null 2>&1 || [ "$(id -u)" != 0 ]; then
  say "no mactime, and no right to install it: install the package sleuthkit, or the test of timelines fails"
  exit 0
fi
export DEBIAN_FRONTEND=noninteractive
for attempt in 1 2 3; do
  if apt-get update -qq >/dev/null && apt-get install -y -qq --no-install-recommends -o DPkg::Lock::Timeout=120 sleuthkit >/dev/null 2>&1; then
    say "done"
    exit 0
  fi
  say "attempt $attempt failed"
  sleep 3
done
say "sleuthkit could not be installed: the test of timelines fails"
