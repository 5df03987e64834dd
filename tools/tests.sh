#!/bin/sh
# tests.sh fast|slow: the two rings of tests. What may run beside others runs in two workers, what is marked `serial` alone after it.
# The tests of the hot loop run on the compiled extension, where there is one, and again on its source.
set -eu
cd "$(dirname "$0")/.."
py=.venv/bin/python
workers=${KOPS_TEST_WORKERS:-2}
case ${1:-fast} in
  fast) ring='not slow' ;;
  slow) ring='slow' ;;
  *) echo "usage: tests.sh fast|slow" >&2; exit 2 ;;
esac
shift

run() { # pytest; a ring without tests of a kind is no failure
  status=0
  $py -m pytest -q "$@" || status=$?
  [ $status -eq 0 ] || [ $status -eq 5 ] || exit $status
}

if ls kops/records/_hot.*.so >/dev/null 2>&1 && [ -z "${KOPS_PURE:-}" ]; then
  KOPS_EXPECT=compiled; export KOPS_EXPECT
fi
run -m "($ring) and not serial" -n "$workers" --dist loadfile "$@"
run -m "($ring) and serial" "$@"
if [ "${KOPS_EXPECT:-}" = compiled ]; then
  echo "tests: the hot loop's tests again, interpreted"
  KOPS_PURE=1; KOPS_EXPECT=interpreted; export KOPS_PURE KOPS_EXPECT
  run -m "($ring) and hot and not serial" -n "$workers" --dist loadfile "$@"
fi
