#!/bin/sh
# setup.sh EXTRAS: makes the development environment, .venv with kops (editable) and these of its extras: `dev`, then `spark,dev`.
# Run by `make setup`; keeps a .venv that works.
set -eu
extras=${1:-spark,dev}
cd "$(dirname "$0")/.."
venv=.venv
py=$venv/bin/python

say() { printf 'setup: %s\n' "$*" >&2; }

runs() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }

# pip into a .venv without one: with the pip of any Python here, else with the wheel of pip that a Python or the system keeps, else with ours.
bring_pip() {
  for other in "$python" python3.14 python3.13 python3.12 python3.11 python3 python; do
    if command -v "$other" >/dev/null 2>&1 && "$other" -m pip --python "$py" install -q pip >/dev/null 2>&1; then
      say "pip came from $other"
      return 0
    fi
  done
  for wheel in "$("$python" -c 'import sysconfig; print(sysconfig.get_path("stdlib"))')"/ensurepip/_bundled/pip-*.whl \
    /usr/share/python-wheels/pip-*.whl tools/bootstrap/pip-*.whl; do
    if [ -e "$wheel" ] && "$py" "$wheel/pip" install -q --no-index "$wheel" >/dev/null 2>&1; then
      say "pip came from $wheel"
      return 0
    fi
  done
  say "no pip for $python: install its package python3-venv or python3-pip, then run make setup again"
  return 1
}

if ! { [ -x $py ] && runs $py; }; then
  python=$(sh tools/find_python.sh)
  say "making $venv with $python ($("$python" -V))"
  rm -rf $venv
  if "$python" -c 'import ensurepip' >/dev/null 2>&1 && "$python" -m venv $venv >/dev/null 2>&1; then
    :
  else
    rm -rf $venv
    "$python" -m venv --without-pip $venv
    bring_pip
  fi
elif ! $py -m pip --version >/dev/null 2>&1; then
  python=$(sh tools/find_python.sh)
  bring_pip
fi

case $extras in
  *spark*) say "installing kops[$extras] (the first time about 850 MB)" ;;
  *) say "installing kops[$extras]" ;;
esac
# The hot loop is built by `make compile`, which sees edits. Where kops is installed already, what builds it is there, too.
isolation=
[ "$extras" = dev ] || ! $py -c 'import mypyc, setuptools' 2>/dev/null || isolation=--no-build-isolation
if ! KOPS_NO_COMPILE=1 $py -m pip install -q --disable-pip-version-check $isolation -e ".[$extras]"; then
  say "pip failed: is a package registry reachable (network, proxy, pip's configuration)?"
  exit 1
fi
# Without byte code, which would take longer than the rest: the tests import little of it.
case $extras in *spark*) $py -m pip install -q --disable-pip-version-check --no-compile -r tools/s3-server.txt ;; esac
# As pip does for what it installs: under PYTHONDONTWRITEBYTECODE a checkout is else compiled at every start of kops.
$py -m compileall -q kops
say "done: $($py -V), $venv"
