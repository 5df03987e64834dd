#!/bin/sh
# tests.sh fast|slow [options of pytest]: the two rings of tests. What may run beside others runs in two workers, what is marked `serial` alone
# after it. Where the hot loop is compiled, the tests that may reach it run again on its source. Everything runs, also behind a failure.
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
trap 'exit 130' INT

run() { # words, then pytest's arguments; a ring without tests of a kind is no failure
  echo "== $1"
  shift
  status=0
  $py -m pytest -q "$@" || status=$?
  case $status in
    0 | 5) ;;
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
exit $failed
