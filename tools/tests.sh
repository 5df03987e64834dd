#!/bin/sh
# tests.sh fast|slow [options of pytest]: the two rings of tests. What may run beside others runs in two workers, what is marked `serial` alone
# after it. Where the hot loop is compiled, the tests that may reach it run again on its source. Everything runs, also behind a failure.
# What failed beside others runs once more by itself: real brokers on a machine that does too much at once may miss a time-out. What fails
# there as well has failed; what passes is named at the end.
set -eu
cd "$(dirname "$0")/.."
py=.venv/bin/python
workers=${KOPS_TEST_WORKERS:-2}
case ${1:-fast} in
  fast) ring='not slow' ;;
  slow) ring='slow' ;;
  *) echo "usage: tests.sh fast|slow [options of pytest]" >&2; exit 2 ;;
esac
[ $# -eq 0 ] || shift
failed=0
busy=
trap 'exit 130' INT

run() { # words, then pytest's arguments; a ring without tests of a kind is no failure
  part=$1
  echo "== $part"
  shift
  cache=.pytest_cache/part
  rm -rf "$cache"
  status=0
  $py -m pytest -q --durations=10 --durations-min=10 -o cache_dir="$cache" "$@" || status=$?
  case $status in
    0 | 5) return ;;
    1) ;;
    *) failed=1; return ;;
  esac
  echo "== $part: what failed, once more by itself"
  status=0
  $py -m pytest -q -o cache_dir="$cache" "$@" -n 0 --last-failed --last-failed-no-failures none || status=$?
  case $status in
    0) busy="$busy
  $part" ;;
    *) failed=1 ;;
  esac
}

loop=interpreted
for built in kops/records/_hot.*.so; do
  [ ! -e "$built" ] || [ -n "${KOPS_PURE:-}" ] || loop=compiled
done
KOPS_EXPECT=$loop; export KOPS_EXPECT
run "$ring, hot loop $loop" -m "($ring) and not serial" -n "$workers" --dist loadfile "$@"
run "$ring, one at a time" -m "($ring) and serial" "$@"
if [ $loop = compiled ]; then
  KOPS_PURE=1; KOPS_EXPECT=interpreted; export KOPS_PURE KOPS_EXPECT
  run "$ring, hot loop interpreted" -m "($ring) and not serial and not once" -n "$workers" --dist loadfile \
    tests/unit tests/golden tests/property tests/fuzz "$@"
fi
[ -z "$busy" ] || echo "tests.sh: failed beside others and passed alone (see above):$busy"
exit $failed
