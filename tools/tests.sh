#!/bin/sh
# tests.sh fast|slow [options of pytest]: the two rings of tests; docs/testing.md describes them. The parts of a ring: tests that run beside
# others; in the slow ring tests that load the machine (marker `cores`); and, where the hot modules are compiled, the tests
# that can tell their source from their machine code once more on the source. All parts run, also behind a failure. The end of the output says
# how long each part took beside its budget.
#
# A failure is a failure. The one exception is a test of a real Kafka broker (marker `kafka`), whose time-outs are not ours: where only such
# tests failed they run once more by themselves, and the end of the output lists them.
set -eu
cd "$(dirname "$0")/.."
py=.venv/bin/python
# Budgets in seconds on two cores.
case ${1:-fast} in
  fast) ring='not slow' budgets='300 0 60' workers=${KOPS_TEST_WORKERS:-4} ;; # its tests wait more than they compute
  slow) ring='slow' budgets='1700 330 60' workers=${KOPS_TEST_WORKERS:-3} ;;
  *) echo "usage: tests.sh fast|slow [options of pytest]" >&2; exit 2 ;;
esac
[ $# -eq 0 ] || shift
# Without byte code each worker would compile all tests and rewrite their assertions again.
unset PYTHONDONTWRITEBYTECODE
failed=0
again=
times=
trap 'exit 130' INT

run() { # budget, words, then pytest's arguments; a ring without tests of a kind is no failure
  budget=$1 part=$2
  shift 2
  echo "== $part"
  began=$(date +%s)
  cache=.pytest_cache/part
  rm -rf "$cache"
  KOPS_FAILED_TESTS=$cache/failed; export KOPS_FAILED_TESTS
  status=0
  $py -m pytest -q --durations=15 --durations-min=3 -o cache_dir="$cache" "$@" || status=$?
  case $status in
    0 | 5) ;;
    1) retry "$@" ;;
    *) failed=1 ;;
  esac
  took=$(($(date +%s) - began))
  late=
  [ "$took" -le "$budget" ] || late=' over budget'
  times="$times
  $(printf '%4d s of %4d s  %s' "$took" "$budget" "$part")$late"
}

retry() { # pytest's arguments
  if [ ! -s "$KOPS_FAILED_TESTS" ] || grep -qv '^kafka ' "$KOPS_FAILED_TESTS"; then
    failed=1
    return
  fi
  names=$(sed 's/^kafka /  /' "$KOPS_FAILED_TESTS")
  echo "== $part: only tests of a real broker failed; running them again by themselves"
  if $py -m pytest -q -o cache_dir="$cache" "$@" -n 0 --last-failed --last-failed-no-failures none; then
    again="$again
$names"
  else
    failed=1
  fi
}

loop=interpreted
for built in kops/records/_hot.*.so; do
  [ ! -e "$built" ] || [ -n "${KOPS_PURE:-}" ] || loop=compiled
done
KOPS_EXPECT=$loop; export KOPS_EXPECT
set -- $budgets -- "$@"
beside=$1 alone=$2 source=$3
shift 4
run "$beside" "$ring, hot modules $loop" -m "($ring) and not cores" -n "$workers" "$@"
[ "$ring" != slow ] || run "$alone" "$ring, under load, two at a time" -m cores -n 2 "$@"
if [ $loop = compiled ]; then
  KOPS_PURE=1; KOPS_EXPECT=interpreted; export KOPS_PURE KOPS_EXPECT
  run "$source" "$ring, hot modules interpreted" -m "($ring) and hot" -n 2 \
    tests/unit tests/property tests/golden tests/fuzz "$@"
fi
[ -z "$again" ] || echo "tests.sh: tests of a real broker that failed at first and passed alone:$again"
echo "tests.sh: time of each part, and its budget:$times"
exit $failed
