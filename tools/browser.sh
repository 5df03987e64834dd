#!/bin/sh
# browser.sh: Chromium for the tests that look at pages, from Debian's packages; does nothing if there is one. Where it cannot be installed
# (no apt-get, not root) it says so and ends well: the tests that need it fail and name what is missing.
set -eu
say() { printf 'browser: %s\n' "$*" >&2; }

for program in chromium chromium-browser google-chrome; do
  if command -v "$program" >/dev/null 2>&1; then
    exit 0
  fi
done
if ! command -v apt-get >/dev/null 2>&1 || [ "$(id -u)" != 0 ]; then
  say "no Chromium, and no right to install it: install the package chromium, or the tests of pages fail"
  exit 0
fi
say "installing chromium"
export DEBIAN_FRONTEND=noninteractive
for attempt in 1 2 3; do
  if apt-get update -qq >/dev/null && apt-get install -y -qq --no-install-recommends -o DPkg::Lock::Timeout=120 chromium >/dev/null 2>&1; then
    say "done: $(chromium --version 2>/dev/null)"
    exit 0
  fi
  say "attempt $attempt failed"
  sleep 3
done
say "chromium could not be installed: the tests of pages fail"
