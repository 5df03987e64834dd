#!/bin/sh
# debian_package.sh PACKAGE TESTS PROGRAM...: a package of Debian that tests need; does nothing if there is one of its programs. Where it
# cannot be installed (no apt-get, not root) it says so and ends well: the tests that need it fail and name what is missing.
set -eu
package=$1 tests=$2
shift 2
say() { printf 'debian_package: %s\n' "$*" >&2; }

for program; do
  if command -v "$program" >/dev/null 2>&1; then
    exit 0
  fi
done
if ! command -v apt-get >/dev/null 2>&1 || [ "$(id -u)" != 0 ]; then
  say "no right to install the package $package: install it, or $tests fail"
  exit 0
fi
say "installing $package"
export DEBIAN_FRONTEND=noninteractive
for attempt in 1 2 3; do
  if apt-get update -qq >/dev/null && apt-get install -y -qq --no-install-recommends -o DPkg::Lock::Timeout=120 "$package" >/dev/null 2>&1; then
    say "done"
    exit 0
  fi
  say "attempt $attempt failed"
  sleep 3
done
say "$package could not be installed: $tests fail"
